using System.Net;
using System.Net.Sockets;
using System.Text.RegularExpressions;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What an application and its client see where callbacks throw, files are sent, requests are cancelled and the server
/// stops: on sockets first, and then on each of ours the same.</summary>
public sealed partial class HttpTraceScenarios : IDisposable
{
    private const string Get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    private const string Post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n";

    private const string GetAndClose = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    /// <summary>For what depends on what Kestrel finds first: a stop when it begins a response, an abort in a write or before
    /// it.</summary>
    private const int Tries = 20;

    private readonly string _file = Path.GetTempFileName();

    public HttpTraceScenarios() => File.WriteAllBytes(_file, Pattern.Bytes(3_000_000));

    public void Dispose() => File.Delete(_file);

    [GeneratedRegex("\r\nDate: [^\r]*")]
    private static partial Regex Date();

    /// <summary>Serves one request, and tells what the application saw, which ends with its <c>OnCompleted</c>, and what the
    /// client.</summary>
    private static async Task<string> SeenAsync(
        Transport transport, Func<HttpContext, Trace, Task> serve, Func<Client, Task>? ask = null, string request = GetAndClose)
    {
        var trace = new Trace();
        var completed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using (var server = await TestServer.HttpAsync(transport, application => application.Run(async context =>
        {
            context.Response.OnCompleted(() =>
            {
                trace.Add("application", "completed");
                completed.TrySetResult();
                return Task.CompletedTask;
            });
            await serve(context, trace);
        })))
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            await client.SendAsync(request);
            if (ask is null)
            {
                trace.Add("client", Date().Replace(await Trace.ReceiveAsync(client), ""));
            }
            else
            {
                await ask(client);
            }
            await completed.Task.Soon();
            client.Dispose();
            await Wait.Until(
                () => server.Log.Lines.Any(line => line.Id.Name == "ConnectionStop"), () => "the connection has not stopped");
            trace.AddLoud(server.Log);
        }
        return trace.ToString();
    }

    private static InvalidOperationException OnPurpose() => new(Trace.OnPurpose);

    private static readonly Dictionary<string, Func<HttpContext, Trace, Task>> s_faults = new()
    {
        ["the handler, before its response"] = static (_, _) => throw OnPurpose(),
        ["the handler, within its response"] = static async (context, _) =>
        {
            context.Response.ContentLength = 10;
            await context.Response.WriteAsync("part");
            await context.Response.Body.FlushAsync();
            throw OnPurpose();
        },
        ["the handler, within a response in chunks"] = static async (context, _) =>
        {
            await context.Response.WriteAsync("part");
            await context.Response.Body.FlushAsync();
            throw OnPurpose();
        },
        ["OnStarting"] = static async (context, trace) =>
        {
            context.Response.OnStarting(static () => throw OnPurpose());
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("hello")));
        },
        ["OnStarting, with nobody to be told"] = static (context, _) =>
        {
            context.Response.OnStarting(static () => throw OnPurpose());
            return Task.CompletedTask;
        },
        ["OnCompleted"] = static async (context, trace) =>
        {
            context.Response.OnCompleted(static () => throw OnPurpose());
            context.Response.OnCompleted(() =>
            {
                trace.Add("application", "completed, too");
                return Task.CompletedTask;
            });
            await context.Response.WriteAsync("hello");
        },
        ["what is disposed with the response"] = static async (context, _) =>
        {
            context.Response.RegisterForDispose(new Throwing());
            await context.Response.WriteAsync("hello");
        },
        ["a length that is not kept"] = static async (context, trace) =>
        {
            context.Response.ContentLength = 3;
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("hello")));
        },
        ["a body that is cut short"] = static async (context, _) =>
        {
            context.Response.ContentLength = 30;
            await context.Response.WriteAsync("hello");
        },
        ["a response that is written with a token that was cancelled"] = static async (context, trace) =>
        {
            var cancelled = new CancellationToken(true);
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("hello", cancelled)));
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("hello again")));
        },
    };

    private sealed class Throwing : IDisposable
    {
        public void Dispose() => throw OnPurpose();
    }

    public static TheoryData<string> Faults => [.. s_faults.Keys];

    [Theory]
    [MemberData(nameof(Faults))]
    public Task What_throws_in_the_application_is_told_as_over_sockets(string place) =>
        Trace.CompareAsync(transport => SeenAsync(transport, s_faults[place]));

    [Fact]
    public Task An_abort_and_what_comes_behind_it_are_told_as_over_sockets() => Trace.CompareAsync(async transport =>
    {
        var received = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        return await SeenAsync(
            transport,
            async (context, trace) =>
            {
                await context.Response.WriteAsync("hello");
                await context.Response.Body.FlushAsync();
                await received.Task.Soon();
                var told = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
                using var registration = context.RequestAborted.Register(told.SetResult);
                context.Abort();
                await told.Task.Soon();
                trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("more")));
                trace.Add("application", await Trace.OutcomeAsync(() => context.Response.WriteAsync("more", context.RequestAborted)));
            },
            async client =>
            {
                await client.ReceiveUntilAsync("hello\r\n");
                received.SetResult();
                await client.ExpectResetAsync();
            });
    });

    [Fact]
    public Task A_body_that_its_client_cuts_is_told_as_over_sockets() => Trace.CompareAsync(
        transport => SeenAsync(
            transport,
            static async (context, trace) =>
                trace.Add("application", await Trace.OutcomeAsync(() => context.Request.Body.CopyToAsync(Stream.Null))),
            static async client =>
            {
                await client.SendAsync("01234");
                client.EndSending();
                await Trace.ReceiveAsync(client);
            },
            Post),
        tries: Tries);

    /// <summary>Parts of the file: from where, and how many bytes.</summary>
    public static TheoryData<long, long?> Parts => new()
    {
        { 0, null }, { 0, 0 }, { 0, 1 }, { 1_000_000, null }, { 2_999_999, null }, { 3_000_000, null }, { 123_456, 1_234_567 },
    };

    [Theory]
    [MemberData(nameof(Parts))]
    public Task Files_and_parts_of_them_are_sent_as_over_sockets(long from, long? count) => Trace.CompareAsync(async transport =>
    {
        byte[] body = [];
        var seen = await SeenAsync(
            transport,
            async (context, trace) =>
            {
                context.Response.ContentLength = count ?? 3_000_000 - from;
                trace.Add("application", await Trace.OutcomeAsync(() => context.Response.SendFileAsync(_file, from, count)));
            },
            async client =>
            {
                await client.ReceiveUntilAsync("\r\n\r\n");
                body = await client.ReceiveToEndAsync();
            });
        Assert.Equal(count ?? 3_000_000 - from, body.Length);
        Pattern.Check(body, from);
        return seen;
    });

    [Theory]
    [InlineData(3_000_001, null)]
    [InlineData(-1, null)]
    [InlineData(0, 3_000_001)]
    public Task Parts_that_a_file_has_not_are_refused_as_over_sockets(long from, int? count) => Trace.CompareAsync(transport => SeenAsync(
        transport, async (context, trace) =>
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.SendFileAsync(_file, from, count)))));

    [Fact]
    public Task A_file_that_is_missing_is_told_as_over_sockets() => Trace.CompareAsync(transport => SeenAsync(
        transport, async (context, trace) =>
            trace.Add("application", await Trace.OutcomeAsync(() => context.Response.SendFileAsync(_file + ".none")))));

    [Fact]
    public Task A_file_whose_client_resets_is_told_as_over_sockets() => Trace.CompareAsync(transport => SeenAsync(
        transport,
        async (context, trace) =>
        {
            // Again and again, for all of one fits where nobody reads.
            string outcome;
            while ((outcome = await Trace.OutcomeAsync(() => context.Response.SendFileAsync(_file, context.RequestAborted))) == "done")
            {
            }
            trace.Add("application", outcome);
        },
        static async client =>
        {
            await client.ReceiveAsync(100_000);
            client.Reset();
        }), tries: Tries);

    [Fact]
    public Task A_file_that_is_cancelled_while_its_client_does_not_read_is_told_as_over_sockets() => Trace.CompareAsync(async transport =>
    {
        using var cancel = new CancellationTokenSource();
        return await SeenAsync(
            transport,
            async (context, trace) =>
            {
                string outcome;
                while ((outcome = await Trace.OutcomeAsync(() => context.Response.SendFileAsync(_file, cancel.Token))) == "done")
                {
                }
                trace.Add("application", outcome);
            },
            async client =>
            {
                await client.ReceiveAsync(100_000);
                await cancel.CancelAsync();
                client.EndSending();
                await Trace.ReceiveAsync(client);
            });
    }, tries: Tries);

    /// <summary>A request in a state when the server is told to stop; what its client does then, and when that is.</summary>
    private sealed record Stop(
        string Request, Func<HttpContext, Task, Task>? Serve, string? Rest = null, bool Cancelled = false, bool EndsFirst = false);

    private static readonly Dictionary<string, Stop> s_stops = new()
    {
        ["a connection that has said nothing"] = new("", null),
        ["half a head"] = new("GET / HT", null),
        ["idle between requests"] = new(Get, static async (context, _) => await context.Response.WriteAsync("hello")),
        ["a handler at work"] = new(Get, static async (context, go) =>
        {
            await go;
            await context.Response.WriteAsync("hello");
        }),
        ["a handler at work, and the stop cancelled"] = new(Get, AwaitAbortAsync, Cancelled: true),
        ["a body that is awaited"] = new(
            Post,
            static async (context, _) =>
            {
                using var reader = new StreamReader(context.Request.Body);
                await context.Response.WriteAsync(await reader.ReadToEndAsync());
            },
            "0123456789"),
        ["a body that is awaited, and the stop cancelled"] = new(Post, ReadToEndAsync, Cancelled: true),
        ["a body that its client cuts"] = new(Post, ReadToEndAsync, EndsFirst: true),
        ["half a response"] = new(Get, static async (context, go) =>
        {
            context.Response.ContentLength = 10;
            await context.Response.WriteAsync("01234");
            await context.Response.Body.FlushAsync();
            await go;
            await context.Response.WriteAsync("56789");
        }),
        ["half a response, and the stop cancelled"] = new(
            Get,
            static async (context, go) =>
            {
                context.Response.ContentLength = 10;
                await context.Response.WriteAsync("01234");
                await context.Response.Body.FlushAsync();
                await AwaitAbortAsync(context, go);
            },
            Cancelled: true),
        ["a connection that was upgraded, and the stop cancelled"] = new(
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
            static async (context, _) =>
            {
                await using var stream = await context.Features.GetRequiredFeature<IHttpUpgradeFeature>().UpgradeAsync();
                await stream.ReadExactlyAsync(new byte[1]);
            },
            Cancelled: true),
    };

    private static async Task AwaitAbortAsync(HttpContext context, Task go)
    {
        var told = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        using var registration = context.RequestAborted.Register(told.SetResult);
        await told.Task.Soon();
    }

    private static async Task ReadToEndAsync(HttpContext context, Task go) => await context.Request.Body.CopyToAsync(Stream.Null);

    public static TheoryData<string> Stops => [.. s_stops.Keys];

    [Theory]
    [MemberData(nameof(Stops))]
    public Task A_server_that_stops_ends_each_request_as_over_sockets(string state) =>
        Trace.CompareAsync(transport => StoppedAsync(transport, s_stops[state]), tries: Tries);

    private static async Task<string> StoppedAsync(Transport transport, Stop stop)
    {
        var trace = new Trace();
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var server = await TestServer.HttpAsync(transport, application => application.Run(async context =>
        {
            var handling = stop.Serve!(context, go.Task);
            begun.SetResult();
            trace.Add("application", await Trace.OutcomeAsync(() => handling));
            ended.SetResult();
            await handling;
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync(stop.Request);
        if (stop.Serve is not null)
        {
            await begun.Task.Soon();
        }
        else
        {
            await Wait.Until(
                () => server.Log.Lines.Any(line => line.Id.Name == "ConnectionStart"), () => "the connection has not started");
        }
        var before = "";
        if (stop.Request == Get && stop.Serve is not null && ended.Task.IsCompleted)
        {
            before = Date().Replace(await client.ReceiveUntilAsync("hello\r\n0\r\n\r\n"), "");
        }
        using var cancel = new CancellationTokenSource();
        var stopping = server.StopAsync(cancel.Token);
        await Wait.Until(() => Refuses(server.EndPoint), () => "the port is still bound");
        if (stop.Cancelled)
        {
            await cancel.CancelAsync();
        }
        if (stop.Rest is { } rest)
        {
            await client.SendAsync(rest);
        }
        if (stop.EndsFirst)
        {
            client.EndSending();
        }
        go.SetResult();
        trace.Add("client", before + Date().Replace(await Trace.ReceiveAsync(client), ""));
        trace.Add("stop", await Trace.OutcomeAsync(() => stopping.Soon()));
        if (stop.Serve is not null)
        {
            await ended.Task.Soon();
        }
        await server.DisposeAsync();
        await Wait.Until(
            () => server.Log.Lines.Any(line => line.Id.Name == "ConnectionStop"), () => "the connection has not stopped");
        trace.AddLoud(server.Log);
        return trace.ToString();
    }

    private static bool Refuses(IPEndPoint address)
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        try
        {
            socket.Connect(address);
            return false;
        }
        catch (SocketException)
        {
            return true;
        }
    }
}
