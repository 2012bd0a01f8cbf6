using System.Diagnostics;
using System.Globalization;
using System.Net;
using System.Net.NetworkInformation;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Kinds of endpoints.</summary>
public class BindScenarios
{
    public static TheoryData<Transport> Normal => Transports.Normal;

    private static void Hello(WebApplication application) => application.MapGet("/", static () => "hello");

    private static async Task<string> GetAsync(EndPoint to)
    {
        using var client = await Client.ConnectAsync(to);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        return await client.ReceiveTextToEndAsync();
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Any_address_of_version_4(Transport transport)
    {
        await using var server = await TestServer.StartAsync(transport, kestrel => kestrel.Listen(IPAddress.Any, 0), Hello);
        Assert.NotEqual(0, server.Port);
        Assert.Contains("hello", await GetAsync(server.EndPoint), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Any_address_of_both_versions(Transport transport)
    {
        await using var server = await TestServer.StartAsync(
            transport, kestrel => kestrel.ListenAnyIP(0),
            application => application.MapGet("/", static context => context.Response.WriteAsync($"{context.Connection.RemoteIpAddress} {context.Connection.LocalIpAddress}")));
        Assert.Contains("::ffff:127.0.0.1 ::ffff:127.0.0.1", await GetAsync(server.EndPoint), StringComparison.Ordinal);
        Assert.Contains("::1 ::1", await GetAsync(new IPEndPoint(IPAddress.IPv6Loopback, server.Port)), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Loopback_of_version_6(Transport transport)
    {
        await using var server = await TestServer.StartAsync(transport, kestrel => kestrel.Listen(IPAddress.IPv6Loopback, 0), Hello);
        Assert.Contains("hello", await GetAsync(new IPEndPoint(IPAddress.IPv6Loopback, server.Port)), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Localhost_of_both_versions(Transport transport)
    {
        var port = FreePort();
        await using var server = await TestServer.StartAsync(transport, kestrel => kestrel.ListenLocalhost(port), Hello);
        Assert.Contains("hello", await GetAsync(new IPEndPoint(IPAddress.Loopback, port)), StringComparison.Ordinal);
        Assert.Contains("hello", await GetAsync(new IPEndPoint(IPAddress.IPv6Loopback, port)), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_path_whose_file_goes_with_the_listener(Transport transport)
    {
        using var folder = new Folder();
        var path = Path.Combine(folder.Path, "s.sock");
        await using (await TestServer.StartAsync(transport, kestrel => kestrel.ListenUnixSocket(path), Hello))
        {
            Assert.True(File.Exists(path));
            Assert.Contains("hello", await GetAsync(new UnixDomainSocketEndPoint(path)), StringComparison.Ordinal);
        }
        Assert.False(File.Exists(path));
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_path_that_is_taken(Transport transport)
    {
        using var folder = new Folder();
        var path = Path.Combine(folder.Path, "s.sock");
        await File.WriteAllTextAsync(path, "");
        var failure = await Assert.ThrowsAsync<IOException>(
            () => TestServer.StartAsync(transport, kestrel => kestrel.ListenUnixSocket(path), Hello));
        Assert.IsType<AddressInUseException>(failure.InnerException);
        Assert.True(File.Exists(path));
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_path_in_a_folder_that_is_missing(Transport transport)
    {
        var failure = await Assert.ThrowsAnyAsync<SocketException>(
            () => TestServer.StartAsync(transport, kestrel => kestrel.ListenUnixSocket("/nowhere/at/all/s.sock"), Hello));
        Assert.NotEmpty(failure.Message);
    }

    [Fact]
    public void A_path_that_is_too_long_is_refused_where_it_is_named()
    {
        var failure = Assert.ThrowsAny<ArgumentException>(() => new UnixDomainSocketEndPoint("/" + new string('x', 200)));
        Assert.Contains("path", failure.Message, StringComparison.OrdinalIgnoreCase);
    }

    /// <summary>As systemd-escape makes them of other names, and what begins as a name of the abstract space does.</summary>
    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_name_with_what_addresses_are_written_with_is_taken_as_it_is(Transport transport)
    {
        using var folder = new Folder();
        await using var factory = transport.IsQuoit ? FactoryScenarios.Create(transport) : null;
        var abstractName = $"\0quoit-{Guid.NewGuid():N}";
        foreach (var name in (string[])
        [
            Path.Combine(folder.Path, @"run\x2dapp.sock"), Path.Combine(folder.Path, @"back\slash"), Path.Combine(folder.Path, @"end\"),
            Path.Combine(folder.Path, "@at"), Path.Combine(folder.Path, "größe und\nZeile"), abstractName + @"\x2d", abstractName + "@ä",
        ])
        {
            var endPoint = new UnixDomainSocketEndPoint(name);
            await using var server = await TestServer.StartAsync(transport, kestrel => kestrel.Listen(endPoint), Hello);
            Assert.Equal(name.StartsWith('\0'), !File.Exists(name));
            Assert.Contains("hello", await GetAsync(endPoint), StringComparison.Ordinal);
            if (factory is not null)
            {
                await using var connection = await factory.ConnectAsync(endPoint);
                Assert.Equal(endPoint, connection.RemoteEndPoint);
            }
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_name_of_the_abstract_space(Transport transport)
    {
        var name = $"\0quoit-{Guid.NewGuid():N}";
        await using var server = await TestServer.StartAsync(
            transport, kestrel => kestrel.Listen(new UnixDomainSocketEndPoint(name)), Hello);
        Assert.Contains("hello", await GetAsync(new UnixDomainSocketEndPoint(name)), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_handle_of_a_bound_socket(Transport transport)
    {
        // What systemd hands over, as Kestrel's UseSystemd binds it.
        var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        var bound = (IPEndPoint)socket.LocalEndPoint!;
        var handle = (ulong)socket.SafeHandle.DangerousGetHandle();
        socket.SafeHandle.SetHandleAsInvalid();
        await using var server = await TestServer.StartAsync(transport, kestrel => kestrel.ListenHandle(handle), Hello);
        Assert.Contains("hello", await GetAsync(bound), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_handle_of_a_socket_stays_its_owners(Transport transport)
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        socket.Listen();
        var bound = (IPEndPoint)socket.LocalEndPoint!;
        // On sockets once: of some hundred rounds one is never told of its connection.
        for (var round = 0; round < (transport.IsQuoit ? 3 : 1); round++)
        {
            await using var server = await TestServer.StartAsync(
                transport, kestrel => kestrel.ListenHandle((ulong)socket.SafeHandle.DangerousGetHandle()), Hello);
            Assert.Equal(bound.Port, server.Port);
            Assert.Contains("hello", await GetAsync(bound), StringComparison.Ordinal);
        }
        // Who comes now waits for the owner, as the socket still listens.
        using var client = await Client.ConnectAsync(bound);
        using var accepted = await socket.AcceptAsync(Wait.Token);
        Assert.Equal(client.Socket.LocalEndPoint, accepted.RemoteEndPoint);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_handle_of_a_unix_socket_leaves_its_file(Transport transport)
    {
        using var folder = new Folder();
        var path = Path.Combine(folder.Path, "s.sock");
        using var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        socket.Bind(new UnixDomainSocketEndPoint(path));
        await using (var server = await TestServer.StartAsync(
            transport, kestrel => kestrel.ListenHandle((ulong)socket.SafeHandle.DangerousGetHandle()), Hello))
        {
            Assert.Contains("hello", await GetAsync(new UnixDomainSocketEndPoint(path)), StringComparison.Ordinal);
        }
        Assert.True(File.Exists(path));
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Addresses_of_unix_sockets(Transport transport)
    {
        using var folder = new Folder();
        var path = Path.Combine(folder.Path, "s.sock");
        var seen = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.StartAsync(
            transport,
            kestrel => kestrel.ListenUnixSocket(path, listening => listening.Run(connection =>
            {
                var socket = connection.Features.Get<IConnectionSocketFeature>()!.Socket;
                seen.TrySetResult(
                    $"{connection.LocalEndPoint} {connection.RemoteEndPoint} {socket.LocalEndPoint} {socket.RemoteEndPoint} "
                    + $"{socket.AddressFamily} {socket.SocketType} {socket.ProtocolType}");
                return Task.CompletedTask;
            })),
            null);
        var own = Path.Combine(folder.Path, "c.sock");
        using var client = await Client.ConnectAsync(new UnixDomainSocketEndPoint(path), socket => socket.Bind(new UnixDomainSocketEndPoint(own)));
        Assert.Equal($"{path} {own} {path} {own} Unix Stream IP", await seen.Task.Soon());
    }

    /// <summary>As a file that is edited.</summary>
    private sealed class Edited(Dictionary<string, string?> values) : ConfigurationProvider, IConfigurationSource
    {
        public IConfigurationProvider Build(IConfigurationBuilder builder) => this;

        public override void Load() => Data = new Dictionary<string, string?>(values, StringComparer.OrdinalIgnoreCase);

        public void Change(string key, string value)
        {
            values[key] = value;
            Load();
            OnReload();
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Endpoints_that_change_in_the_configuration(Transport transport)
    {
        using var folder = new Folder();
        const string Moved = "Endpoints:Moved:Url";
        var (first, kept) = (FreePort(), FreePort());
        var path = Path.Combine(folder.Path, "s.sock");
        var edited = new Edited(new Dictionary<string, string?>
        {
            [Moved] = $"http://127.0.0.1:{first}",
            ["Endpoints:Kept:Url"] = $"http://127.0.0.1:{kept}",
        });
        var configuration = new ConfigurationBuilder().Add(edited).Build();
        await using var server = await TestServer.StartAsync(
            transport, kestrel => kestrel.Configure(configuration, reloadOnChange: true), Hello);
        using var idle = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, first));
        async Task IsServedAsync(EndPoint to)
        {
            while (true)
            {
                try
                {
                    Assert.Contains("hello", await GetAsync(to), StringComparison.Ordinal);
                    return;
                }
                catch (SocketException)
                {
                    // Not yet.
                    await Task.Delay(5, Wait.Token);
                }
            }
        }
        await IsServedAsync(new IPEndPoint(IPAddress.Loopback, first));
        for (var round = 0; round < 2; round++)
        {
            edited.Change(Moved, $"http://unix:{path}");
            await IsServedAsync(new UnixDomainSocketEndPoint(path)).Soon();
            // Its connections were ended, and nobody listens there any more.
            Assert.Empty(await idle.ReceiveToEndAsync());
            await Assert.ThrowsAsync<SocketException>(() => Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, first)));
            await IsServedAsync(new IPEndPoint(IPAddress.Loopback, kept)).Soon();
            edited.Change(Moved, $"http://127.0.0.1:{first}");
            await IsServedAsync(new IPEndPoint(IPAddress.Loopback, first)).Soon();
            Assert.False(File.Exists(path));
        }
    }

    [Fact]
    public async Task A_socket_that_systemd_hands_over()
    {
        const string Shell = "/bin/bash";
        if (!File.Exists(Shell))
        {
            return; // Another shell knows no descriptor above 9.
        }
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        socket.Listen();
        // As sd_listen_fds(3) has it: the first is number 3, and the process that is meant is named.
        await using var child = await Child.StartAsync(
            "systemd", [],
            through: $"""{Shell} -c 'exec 3<&{Child.Inherited(socket)}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"'""");
        Assert.Contains("Information 1 Started", child.Output, StringComparison.Ordinal);
        var bound = (IPEndPoint)socket.LocalEndPoint!;
        Assert.Equal(bound.Port, child.Port);
        Assert.Contains("hello", await GetAsync(bound), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_port_that_is_in_use(Transport transport)
    {
        await using var first = await TestServer.HttpAsync(transport, Hello);
        var failure = await Assert.ThrowsAsync<IOException>(() => TestServer.HttpAsync(transport, Hello, port: first.Port));
        Assert.IsType<AddressInUseException>(failure.InnerException);
        Assert.Contains(first.Port.ToString(), failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task An_address_of_another_machine(Transport transport)
    {
        var failure = await Assert.ThrowsAsync<SocketException>(
            () => TestServer.StartAsync(transport, kestrel => kestrel.Listen(IPAddress.Parse("192.0.2.1"), 80), Hello));
        Assert.Equal(SocketError.AddressNotAvailable, failure.SocketErrorCode);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_same_port_again_while_clients_come_and_go(Transport transport)
    {
        var port = FreePort();
        using var ended = new CancellationTokenSource();
        long answered = 0;
        var clients = Enumerable.Range(0, 8).Select(_ => Task.Run(async () =>
        {
            while (!ended.IsCancellationRequested)
            {
                try
                {
                    var answer = await GetAsync(new IPEndPoint(IPAddress.Loopback, port));
                    if (answer.Length > 0)
                    {
                        Assert.Contains("hello", answer, StringComparison.Ordinal);
                        Interlocked.Increment(ref answered);
                    }
                }
                catch (SocketException)
                {
                    // Between two servers there is none.
                    await Task.Yield();
                }
            }
        })).ToArray();
        for (var round = 0; round < 4; round++)
        {
            await using var server = await TestServer.HttpAsync(transport, Hello, port: port);
            var before = Volatile.Read(ref answered);
            await Wait.Until(() => Volatile.Read(ref answered) >= before + 20, () => $"round {round} answers nobody");
        }
        await ended.CancelAsync();
        await Task.WhenAll(clients).Soon();
    }

    /// <summary>Addresses as they are written in <c>--urls</c>, and those that are to answer then.</summary>
    private static List<(string Url, IPAddress[] Answering)> Urls
    {
        get
        {
            List<(string, IPAddress[])> urls =
            [
                ("http://127.0.0.1:0", [IPAddress.Loopback]),
                ("http://[::1]:0", [IPAddress.IPv6Loopback]),
                ("http://*:0", [IPAddress.Loopback, IPAddress.IPv6Loopback]),
                ("http://+:0", [IPAddress.Loopback, IPAddress.IPv6Loopback]),
                ("http://some.host.name:0", [IPAddress.Loopback, IPAddress.IPv6Loopback]),
            ];
            // Those of this machine, of which one of a link has the link's number behind it.
            var own = NetworkInterface.GetAllNetworkInterfaces()
                .Where(link => link.OperationalStatus == OperationalStatus.Up)
                .SelectMany(link => link.GetIPProperties().UnicastAddresses)
                .Select(address => address.Address);
            urls.AddRange(own.Select(address => ($"http://{(address.AddressFamily == AddressFamily.InterNetworkV6 ? $"[{address}]" : address)}:0", new[] { address })));
            return urls;
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Urls_of_each_form(Transport transport)
    {
        foreach (var (url, answering) in Urls)
        {
            await using var server = await TestServer.StartAsync(transport, null, application =>
            {
                application.Urls.Add(url);
                application.MapGet("/", static context => context.Response.WriteAsync($"<{context.Connection.LocalIpAddress}>"));
            });
            foreach (var address in answering)
            {
                var answer = await GetAsync(new IPEndPoint(address, server.Port));
                Assert.True(
                    answer.Contains($"<{address}>", StringComparison.Ordinal) || answer.Contains($"<::ffff:{address}>", StringComparison.Ordinal),
                    $"{url} at {address}: {answer}");
            }
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_url_of_a_path(Transport transport)
    {
        using var folder = new Folder();
        var path = Path.Combine(folder.Path, "s.sock");
        await using var server = await TestServer.StartAsync(transport, null, application =>
        {
            application.Urls.Add($"http://unix:{path}");
            Hello(application);
        });
        Assert.Contains("hello", await GetAsync(new UnixDomainSocketEndPoint(path)), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task Localhost_of_which_one_version_is_in_use(Transport transport)
    {
        foreach (var taken in new[] { IPAddress.Loopback, IPAddress.IPv6Loopback })
        {
            using var socket = new Socket(taken.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
            var port = FreePort();
            socket.Bind(new IPEndPoint(taken, port));
            socket.Listen();
            var failure = await Assert.ThrowsAsync<IOException>(
                () => TestServer.StartAsync(transport, kestrel => kestrel.ListenLocalhost(port), Hello));
            Assert.IsType<AddressInUseException>(failure.InnerException);
            Assert.Contains($"{new IPEndPoint(taken, port)}", failure.Message, StringComparison.Ordinal);
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_process_that_is_started_meanwhile_inherits_nothing(Transport transport)
    {
        // It would keep the port bound, and connections open, when the server has ended.
        await using var server = await TestServer.HttpAsync(
            transport,
            static application => application.MapGet(
                "/",
                // Whoever asks for the socket is given a descriptor of its own.
                static (HttpContext context) => $"hello {context.Features.Get<IConnectionSocketFeature>()!.Socket.LocalEndPoint}"));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await client.ReceiveUntilAsync($"hello {server.EndPoint}");
        // A shell's own `read` waits for the end of its input.
        using var child = Process.Start(new ProcessStartInfo("/bin/sh", ["-c", "echo started; read line"])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
        })!;
        Assert.Equal("started", await child.StandardOutput.ReadLineAsync(Wait.Token));
        var inherited = Directory.GetFileSystemEntries($"/proc/{child.Id}/fd")
            .Select(entry => new FileInfo(entry).LinkTarget ?? "")
            .Where(target => target.StartsWith("socket:", StringComparison.Ordinal) || target.StartsWith("anon_inode:", StringComparison.Ordinal))
            // Other tests run at the same time.
            .Where(static target => !Child.IsInheritedOnPurpose(target));
        Assert.Empty(inherited);
        child.StandardInput.Close();
        await child.WaitForExitAsync(Wait.Token);
    }

    private sealed class ElsewhereEndPoint : EndPoint
    {
        public override string ToString() => "elsewhere";
    }

    /// <summary>A transport for that kind of endpoint, which it binds somewhere by sockets.</summary>
    private sealed class ElsewhereFactory(SocketTransportFactory sockets) : IConnectionListenerFactory, IConnectionListenerFactorySelector
    {
        public bool CanBind(EndPoint endpoint) => endpoint is ElsewhereEndPoint;

        public ValueTask<IConnectionListener> BindAsync(EndPoint endpoint, CancellationToken cancellationToken = default) =>
            sockets.BindAsync(new IPEndPoint(IPAddress.Loopback, 0), cancellationToken);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_kind_of_endpoint_that_is_another_transports_is_left_to_it(Transport transport)
    {
        await using var server = await TestServer.StartAsync(
            transport,
            static kestrel =>
            {
                kestrel.Listen(new ElsewhereEndPoint());
                kestrel.Listen(IPAddress.Loopback, 0);
            },
            Hello,
            services: static services =>
            {
                services.AddSingleton<SocketTransportFactory>();
                services.AddSingleton<IConnectionListenerFactory, ElsewhereFactory>();
            });
        foreach (var url in server.Urls)
        {
            Assert.Contains("hello", await GetAsync(new IPEndPoint(IPAddress.Loopback, new Uri(url).Port)), StringComparison.Ordinal);
        }
        Assert.Equal(2, server.Urls.Count);
        if (server.Loops is { } loops)
        {
            // One of the two connections is Quoit's.
            await Wait.Until(() => LoopState.Read(loops, "accepted") > 0, () => "nothing is accepted");
            await LoopState.NothingLeftAsync(loops);
            Assert.Equal(1, LoopState.Read(loops, "accepted"));
        }
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_kind_of_endpoint_that_nobody_knows_is_named(Transport transport)
    {
        var failure = await Assert.ThrowsAsync<InvalidOperationException>(
            () => TestServer.StartAsync(transport, static kestrel => kestrel.Listen(new ElsewhereEndPoint()), Hello));
        Assert.Contains(nameof(ElsewhereEndPoint), failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData(QuoitAcceptMode.HandOver)]
    [InlineData(QuoitAcceptMode.Shared)]
    [InlineData(QuoitAcceptMode.UnsafeReusePort)]
    public async Task Each_way_of_sharing_a_socket(QuoitAcceptMode mode)
    {
        var transport = new Transport("quoit", QuoitEngine.Auto, false, false);
        await using var server = await TestServer.HttpAsync(transport, Hello, options: options =>
        {
            options.AcceptMode = mode;
            options.Loops = 3;
        });
        for (var round = 0; round < 20; round++)
        {
            Assert.Contains("hello", await GetAsync(server.EndPoint), StringComparison.Ordinal);
        }
    }

    /// <summary>A port that nobody has, below those that the kernel gives to connections and to sockets bound to port 0
    /// (ip(7)), so that no other scenario is given it meanwhile.</summary>
    internal static int FreePort()
    {
        var first = int.Parse(File.ReadAllText("/proc/sys/net/ipv4/ip_local_port_range").Split('\t')[0], CultureInfo.InvariantCulture);
        Assert.True(first > 2048, "the kernel leaves ports to ask for");
        while (true)
        {
            var port = Random.Shared.Next(1024, first);
            using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
            try
            {
                socket.Bind(new IPEndPoint(IPAddress.Loopback, port));
                return port;
            }
            catch (SocketException error) when (error.SocketErrorCode == SocketError.AddressAlreadyInUse)
            {
                // The next one.
            }
        }
    }
}
