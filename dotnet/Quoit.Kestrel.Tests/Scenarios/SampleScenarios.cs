using System.Buffers;
using System.Buffers.Binary;
using System.Diagnostics;
using System.IO.Pipelines;
using System.Net;
using System.Net.Http.Headers;
using System.Net.Sockets;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;
using Microsoft.AspNetCore.Builder;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>The samples, as their readers start them.</summary>
public partial class SampleScenarios
{
    /// <summary>A sample that runs, and ends in order when it is told to.</summary>
    internal sealed partial class Sample : IAsyncDisposable
    {
        private readonly Process _process;
        private readonly Task<string> _rest;
        private bool _isTold;

        private Sample(Process process, Uri address, string log, Task<string> rest)
        {
            _process = process;
            Address = address;
            Log = log;
            _rest = rest;
        }

        public Uri Address { get; }

        /// <summary>What it logged until it listened.</summary>
        public string Log { get; }

        public static Task<Sample> StartAsync(string name, params string[] arguments) => StartAsync(name, [], arguments);

        public static async Task<Sample> StartAsync(string name, Dictionary<string, string> variables, params string[] arguments)
        {
            var start = new ProcessStartInfo("dotnet", [Program(name), .. arguments]) { RedirectStandardOutput = true };
            start.Environment["ASPNETCORE_URLS"] = "http://127.0.0.1:0";
            foreach (var (variable, value) in variables)
            {
                start.Environment[variable] = value;
            }
            return await StartAsync(name, start);
        }

        /// <summary>Starts one on a socket of this process, as a service manager hands it over.</summary>
        public static Task<Sample> StartOnAsync(Socket socket, string name, params string[] arguments)
        {
            // Another shell than this one knows no descriptor above 9.
            var script = $"exec 3<&{Child.Inherited(socket)}; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
            var start = new ProcessStartInfo("/bin/bash", ["-c", script, "dotnet", Program(name), .. arguments])
            {
                RedirectStandardOutput = true,
            };
            return StartAsync(name, start);
        }

        private static string Program(string name)
        {
            var configuration = new DirectoryInfo(AppContext.BaseDirectory).Parent!.Name;
            return Path.Combine(Folder.Repository, "target", "dotnet", "bin", name, configuration, "net10.0", name + ".dll");
        }

        private static async Task<Sample> StartAsync(string name, ProcessStartInfo start)
        {
            var process = Process.Start(start)!;
            var log = "";
            while (await process.StandardOutput.ReadLineAsync(Wait.Token) is { } line)
            {
                log += line + "\n";
                const string Listening = "Now listening on: ";
                var at = line.IndexOf(Listening, StringComparison.Ordinal);
                if (at >= 0)
                {
                    return new Sample(process, new Uri(line[(at + Listening.Length)..]), log, process.StandardOutput.ReadToEndAsync());
                }
            }
            throw new InvalidOperationException($"{name} has ended: {log}");
        }

        /// <summary>Tells it to end, as whoever runs services does.</summary>
        public void Terminate()
        {
            const int Signal = 15;
            if (!_isTold)
            {
                _isTold = true;
                Assert.Equal(0, Kill(_process.Id, Signal));
            }
        }

        /// <summary>Tells it to end and waits until it takes no more connections.</summary>
        public async Task BeginToDrainAsync()
        {
            Terminate();
            while (true)
            {
                try
                {
                    using var client = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, Address.Port));
                }
                catch (SocketException)
                {
                    return;
                }
            }
        }

        public async ValueTask DisposeAsync()
        {
            Terminate();
            try
            {
                await _process.WaitForExitAsync(Wait.Token);
                Assert.True(_process.ExitCode == 0, await _rest);
            }
            finally
            {
                if (!_process.HasExited)
                {
                    _process.Kill();
                }
                _process.Dispose();
            }
        }

        [LibraryImport("libc", EntryPoint = "kill")]
        private static partial int Kill(int process, int signal);
    }

    [Fact]
    public async Task Minimal_api()
    {
        await using var sample = await Sample.StartAsync("MinimalApi");
        Assert.Contains("Quoit runs", sample.Log, StringComparison.Ordinal);
        using var client = new HttpClient { BaseAddress = sample.Address };
        Assert.Equal("Hello, World!", await client.GetStringAsync("/", Wait.Token));
        Assert.Equal("""{"message":"Hello, World!"}""", await client.GetStringAsync("/json", Wait.Token));
        Assert.Equal("Healthy", await client.GetStringAsync("/healthz", Wait.Token));
        Assert.Contains("\"canRun\":true", await client.GetStringAsync("/doctor", Wait.Token), StringComparison.Ordinal);
    }

    /// <summary>As the chart of deploy/kubernetes starts it, and as the kubelet takes it down.</summary>
    [Fact]
    public async Task A_pod_hears_the_variables_of_the_chart_and_is_ready_until_it_drains()
    {
        var variables = new Dictionary<string, string>
        {
            ["ASPNETCORE_URLS"] = "http://127.0.0.1:0",
            ["Kestrel__Quoit__Engine"] = "Epoll",
            ["Kestrel__Quoit__Loops"] = "2",
            ["Kestrel__Quoit__Connections"] = "64",
            ["Kestrel__Quoit__PinLoops"] = "false",
            ["ASPNETCORE_shutdownTimeoutSeconds"] = "60",
        };
        var chart = File.ReadAllText(Path.Combine(Folder.Repository, "deploy", "kubernetes", "chart", "templates", "_server.tpl"));
        var named = ChartVariable().Matches(chart).Select(match => match.Groups[1].Value);
        Assert.Equal(named.Order(), variables.Keys.Order());
        await using var sample = await Sample.StartAsync("MinimalApi", variables);
        Assert.Contains("Quoit runs 2 loop(s) on Epoll", sample.Log, StringComparison.Ordinal);
        using (var client = new HttpClient { BaseAddress = sample.Address })
        {
            foreach (var path in new[] { "/readyz", "/livez" })
            {
                Assert.Equal("Healthy", await client.GetStringAsync(path, Wait.Token));
            }
        }
        // From here on a probe finds nobody.
        await sample.BeginToDrainAsync();
    }

    [GeneratedRegex("- name: (ASPNETCORE_\\w+|Kestrel__\\w+)")]
    private static partial Regex ChartVariable();

    [Fact]
    public async Task Grpc_shaped()
    {
        await using var sample = await Sample.StartAsync("GrpcShaped");
        using var client = new HttpClient();
        var messages = new MemoryStream();
        foreach (var size in new[] { 0, 1, 5000, 100_000 })
        {
            var prefix = new byte[5];
            BinaryPrimitives.WriteInt32BigEndian(prefix.AsSpan(1), size);
            messages.Write(prefix);
            messages.Write(Pattern.Bytes(size));
        }
        await Task.WhenAll(Enumerable.Range(0, 20).Select(async _ =>
        {
            using var request = new HttpRequestMessage(HttpMethod.Post, new Uri(sample.Address, "/sample.Echo/Talk"))
            {
                Version = HttpVersion.Version20,
                VersionPolicy = HttpVersionPolicy.RequestVersionExact,
                Content = new ByteArrayContent(messages.ToArray()),
            };
            request.Content.Headers.ContentType = new MediaTypeHeaderValue("application/grpc");
            using var response = await client.SendAsync(request, Wait.Token);
            Assert.Equal(messages.ToArray(), await response.Content.ReadAsByteArrayAsync());
            Assert.Equal("0", response.TrailingHeaders.GetValues("grpc-status").Single());
        })).Soon();
    }

    [Fact]
    public async Task A_call_in_flight_ends_before_the_service_does()
    {
        await using var sample = await Sample.StartAsync("GrpcShaped");
        using var client = new HttpClient();
        var calls = new TaskCompletionSource<Stream>(TaskCreationOptions.RunContinuationsAsynchronously);
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        using var request = new HttpRequestMessage(HttpMethod.Post, new Uri(sample.Address, "/sample.Echo/Talk"))
        {
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            Content = new OpenContent(calls, ended.Task),
        };
        using var response = await client.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, Wait.Token);
        await using var answers = await response.Content.ReadAsStreamAsync(Wait.Token);
        var call = await calls.Task.Soon();
        byte[] message = [0, 0, 0, 0, 2, 4, 7];
        for (var number = 0; number < 2; number++)
        {
            await call.WriteAsync(message, Wait.Token);
            await call.FlushAsync(Wait.Token);
            var back = new byte[message.Length];
            await answers.ReadExactlyAsync(back, Wait.Token);
            Assert.Equal(message, back);
            await sample.BeginToDrainAsync();
        }
        ended.SetResult();
        Assert.Equal(0, await answers.ReadAsync(new byte[1], Wait.Token));
        Assert.Equal("0", response.TrailingHeaders.GetValues("grpc-status").Single());
    }

    [Fact]
    public async Task A_message_longer_than_a_service_takes_is_refused_when_its_length_has_come()
    {
        await using var sample = await Sample.StartAsync("GrpcShaped");
        using var client = new HttpClient();
        using var request = new HttpRequestMessage(HttpMethod.Post, new Uri(sample.Address, "/sample.Echo/Talk"))
        {
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            // Of 4 GiB, of which no byte follows.
            Content = new ByteArrayContent([0, 255, 255, 255, 255]),
        };
        using var response = await client.SendAsync(request, Wait.Token);
        Assert.Empty(await response.Content.ReadAsByteArrayAsync(Wait.Token));
        Assert.Equal("8", response.TrailingHeaders.GetValues("grpc-status").Single());
    }

    /// <summary>A request whose body is written from elsewhere until it is to end.</summary>
    private sealed class OpenContent(TaskCompletionSource<Stream> opened, Task ended) : HttpContent
    {
        protected override async Task SerializeToStreamAsync(Stream stream, TransportContext? context)
        {
            // So that its head leaves.
            await stream.FlushAsync();
            opened.SetResult(stream);
            await ended;
        }

        protected override bool TryComputeLength(out long length)
        {
            length = 0;
            return false;
        }
    }

    [Fact]
    public async Task Signalr_chat()
    {
        await using var sample = await Sample.StartAsync("SignalRChat");
        using var client = new HttpClient();
        Assert.Contains("/chat", await client.GetStringAsync(sample.Address, Wait.Token), StringComparison.Ordinal);
        using var one = await HubClient.ConnectAsync(sample.Address.Port, "/chat");
        using var other = await HubClient.ConnectAsync(sample.Address.Port, "/chat");
        await one.InvokeAsync("Say", "hello");
        Assert.Contains("hello", await other.ReceiveAsync("Heard"), StringComparison.Ordinal);
    }

    [Fact]
    public async Task Reverse_proxy()
    {
        await using var backend = await TestServer.HttpAsync(new Transport("sockets", null, false, false), HttpScenarios.Map);
        await using var sample = await Sample.StartAsync("ReverseProxy", "--backend", backend.Address);
        using var client = new HttpClient { BaseAddress = sample.Address };
        Assert.Equal("hello", await client.GetStringAsync("/", Wait.Token));
        await using (var body = await client.GetStreamAsync("/bytes/2000000", Wait.Token))
        {
            Assert.Equal(2_000_000, await HttpScenarios.CheckBodyAsync(body));
        }
        using var content = new ByteArrayContent(Pattern.Bytes(2_000_000));
        using var counted = await client.PostAsync(new Uri("/count", UriKind.Relative), content, Wait.Token);
        Assert.Equal("2000000", await counted.Content.ReadAsStringAsync());
        // A path that would name another host if it were taken for a reference: nobody is there.
        using (var raw = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, sample.Address.Port)))
        {
            await raw.SendAsync($"GET //127.0.0.1:{BindScenarios.FreePort()}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            Assert.StartsWith("HTTP/1.1 404 ", await raw.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        }
        await backend.StopAsync();
        using var missing = await client.GetAsync(new Uri("/", UriKind.Relative), Wait.Token);
        Assert.Equal(HttpStatusCode.BadGateway, missing.StatusCode);
    }

    /// <summary>HTTP/2 says nowhere that a body comes: neither by a length nor by an encoding.</summary>
    [Fact]
    public async Task Reverse_proxy_passes_bodies_of_HTTP_2_on()
    {
        await using var backend = await TestServer.HttpAsync(new Transport("sockets", null, false, false), HttpScenarios.Map);
        var variables = new Dictionary<string, string> { ["Kestrel__EndpointDefaults__Protocols"] = "Http2" };
        await using var sample = await Sample.StartAsync("ReverseProxy", variables, "--backend", backend.Address);
        using var client = new HttpClient { BaseAddress = sample.Address };
        using var request = new HttpRequestMessage(HttpMethod.Post, "/count")
        {
            // Of a stream whose length is not known.
            Content = new StreamContent(PipeReader.Create(new ReadOnlySequence<byte>(Pattern.Bytes(100_000))).AsStream()),
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
        };
        using var counted = await client.SendAsync(request, Wait.Token);
        Assert.Equal("100000", await counted.Content.ReadAsStringAsync());
    }

    [Fact]
    public async Task A_request_in_flight_ends_before_the_proxy_does()
    {
        var arrived = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var backend = await TestServer.HttpAsync(
            new Transport("sockets", null, false, false),
            application => application.MapGet("/held", async () =>
            {
                arrived.SetResult();
                await go.Task;
                return "answered";
            }));
        await using var sample = await Sample.StartAsync("ReverseProxy", "--backend", backend.Address);
        using var client = new HttpClient { BaseAddress = sample.Address };
        var answer = client.GetStringAsync("/held", Wait.Token);
        await arrived.Task.Soon();
        await sample.BeginToDrainAsync();
        go.SetResult();
        Assert.Equal("answered", await answer);
    }
}
