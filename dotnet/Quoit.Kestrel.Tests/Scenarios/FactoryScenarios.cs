using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>The factories by themselves, without Kestrel: a server and a client of connections.</summary>
public class FactoryScenarios
{
    public static TheoryData<Transport> Quoit => Transports.Quoit;

    internal static QuoitTransportFactory Create(Transport transport, PoisonPoolFactory? pools = null, Action<QuoitTransportOptions>? configure = null)
    {
        var options = new QuoitTransportOptions();
        transport.Configure(options);
        configure?.Invoke(options);
        return new QuoitTransportFactory(Options.Create(options), null, pools);
    }

    private static async Task ServeAsync(IConnectionListener listener)
    {
        var serving = new List<Task>();
        while (await listener.AcceptAsync() is { } connection)
        {
            serving.Add(EchoAsync(connection));
        }
        await Task.WhenAll(serving);
    }

    private static async Task EchoAsync(ConnectionContext connection)
    {
        await using (connection)
        {
            await connection.Transport.Input.CopyToAsync(connection.Transport.Output);
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_server_and_a_client_over_tcp_and_unix(Transport transport)
    {
        var pools = new PoisonPoolFactory();
        await using (var factory = Create(transport, pools))
        {
            EndPoint[] places = [new IPEndPoint(IPAddress.Loopback, 0), new UnixDomainSocketEndPoint($"\0quoit-{Guid.NewGuid():N}")];
            foreach (var place in places)
            {
                await using var listener = await factory.BindAsync(place);
                var serving = ServeAsync(listener);
                await using (var client = await factory.ConnectAsync(listener.EndPoint))
                {
                    var writing = client.Transport.Output.WriteAsync(Pattern.Bytes(200_000)).AsTask();
                    var position = 0L;
                    while (position < 200_000)
                    {
                        var result = await client.Transport.Input.ReadAsync(Wait.Token);
                        foreach (var segment in result.Buffer)
                        {
                            Pattern.Check(segment.Span, position);
                            position += segment.Length;
                        }
                        client.Transport.Input.AdvanceTo(result.Buffer.End);
                    }
                    await writing.Soon();
                }
                await listener.UnbindAsync();
                Assert.Null(await listener.AcceptAsync());
                await serving.Soon();
            }
        }
        pools.Verify();
        Assert.Equal(0, pools.Rented);
    }

    public static TheoryData<Transport> Normal => Transports.QuoitNormal;

    /// <summary>As with sockets, which take a connection when they are asked for one: here up to a bound come before that.</summary>
    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_slow_accept_leaves_connections_to_the_kernel(Transport transport)
    {
        const int behind = 60;
        await using var factory = Create(transport);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        var clients = new List<Client>();
        long Accepted() => LoopState.Read(factory.Group!, "accepted");
        while (clients.Count < QuoitConnectionListener.MostWaiting)
        {
            clients.Add(await Client.ConnectAsync(listener.EndPoint));
            await Wait.Until(() => Accepted() >= clients.Count, () => $"{Accepted()} of {clients.Count} were accepted");
        }
        // Each loop has carried out what it was told.
        await factory.Group!.TurnAllAsync();
        await factory.Group!.TurnAllAsync();
        for (var more = 0; more < behind; more++)
        {
            clients.Add(await Client.ConnectAsync(listener.EndPoint));
        }
        await factory.Group!.TurnAllAsync();
        Assert.Equal(QuoitConnectionListener.MostWaiting, Accepted());
        var peers = new HashSet<EndPoint>();
        for (var taken = 0; taken < clients.Count; taken++)
        {
            await using var connection = (await listener.AcceptAsync().Soon())!;
            peers.Add(connection.RemoteEndPoint!);
        }
        Assert.Equal(clients.Select(client => client.Socket.LocalEndPoint!).ToHashSet(), peers);
        clients.ForEach(client => client.Dispose());
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_host_by_name_and_a_handle(Transport transport)
    {
        await using var factory = Create(transport);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        var serving = ServeAsync(listener);
        var bound = (IPEndPoint)listener.EndPoint;
        await using (var client = await factory.ConnectAsync(new DnsEndPoint("localhost", bound.Port)))
        {
            await client.Transport.Output.WriteAsync("name"u8.ToArray());
            await client.Transport.Input.ReadAtLeastAsync(4, Wait.Token);
        }
        var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        await socket.ConnectAsync(bound);
        var handle = new FileHandleEndPoint((ulong)socket.SafeHandle.DangerousGetHandle(), FileHandleType.Tcp);
        socket.SafeHandle.SetHandleAsInvalid();
        await using (var client = await factory.ConnectAsync(handle))
        {
            Assert.Equal(bound, client.RemoteEndPoint);
            await client.Transport.Output.WriteAsync("handle"u8.ToArray());
            await client.Transport.Input.ReadAtLeastAsync(6, Wait.Token);
        }
        await listener.UnbindAsync();
        await serving.Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_refused_connect_is_the_exception_of_sockets_and_leaves_nothing(Transport transport)
    {
        await using var factory = Create(transport);
        // Bound and not listening: the port is nobody else's.
        using var bound = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        bound.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        var failure = await Assert.ThrowsAsync<SocketException>(
            () => factory.ConnectAsync(bound.LocalEndPoint!).AsTask());
        Assert.Equal(SocketError.ConnectionRefused, failure.SocketErrorCode);
        var missing = await Assert.ThrowsAsync<SocketException>(
            () => factory.ConnectAsync(new UnixDomainSocketEndPoint("/nowhere/at/all")).AsTask());
        Assert.NotEqual(SocketError.Success, missing.SocketErrorCode);
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_connect_that_hangs_can_be_cancelled(Transport transport)
    {
        // The queue of this listener is full, so that the kernel drops what else comes.
        using var full = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        full.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        full.Listen(0);
        using var filler = await Client.ConnectAsync(full.LocalEndPoint!);
        await using var factory = Create(transport);
        var pending = new List<Task<ConnectionContext>>();
        using var cancel = new CancellationTokenSource();
        for (var number = 0; number < 4; number++)
        {
            pending.Add(factory.ConnectAsync(full.LocalEndPoint!, cancel.Token).AsTask());
        }
        await Wait.Until(() => LoopState.Read(factory.Group!, "connections") > 0, () => "nothing connects");
        await cancel.CancelAsync();
        foreach (var connect in pending)
        {
            try
            {
                await (await connect.Soon()).DisposeAsync();
            }
            catch (OperationCanceledException)
            {
            }
        }
        Assert.Contains(pending, connect => connect.IsCanceled);
        using var already = new CancellationTokenSource();
        await already.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => factory.ConnectAsync(full.LocalEndPoint!, already.Token).AsTask());
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_unix_listener_whose_queue_is_full_refuses_the_attempt(Transport transport)
    {
        // connect(2) returns EAGAIN here, which means neither that the attempt has begun nor that it is to be tried at once.
        using var folder = new Folder();
        var to = new UnixDomainSocketEndPoint(Path.Combine(folder.Path, "full"));
        using var full = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        full.Bind(to);
        full.Listen(0);
        var queued = new List<Socket>();
        for (SocketException? refused = null; refused is null;)
        {
            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified) { Blocking = false };
            queued.Add(socket);
            try
            {
                socket.Connect(to);
            }
            catch (SocketException failure)
            {
                refused = failure;
            }
        }
        await using var factory = Create(transport);
        var refusal = await Assert.ThrowsAsync<SocketException>(() => factory.ConnectAsync(to, Wait.Token).AsTask());
        Assert.Equal(SocketError.WouldBlock, refusal.SocketErrorCode);
        for (var accepted = 0; accepted < queued.Count - 1; accepted++)
        {
            (await full.AcceptAsync(Wait.Token)).Dispose();
        }
        // There is room again.
        await using var next = await factory.ConnectAsync(to, Wait.Token);
        (await full.AcceptAsync(Wait.Token)).Dispose();
        queued.ForEach(socket => socket.Dispose());
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Disposed_listeners_and_factories_say_so(Transport transport)
    {
        var factory = Create(transport);
        var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        // Accepted, and taken by nobody.
        using var client = await Client.ConnectAsync(listener.EndPoint);
        await Wait.Until(() => LoopState.Read(factory.Group!, "accepted") > 0, () => "nothing is accepted");
        await listener.DisposeAsync();
        await client.ExpectResetAsync();
        Assert.Null(await listener.AcceptAsync());
        await listener.DisposeAsync();
        await factory.DisposeAsync();
        await factory.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0)).AsTask());
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_factory_that_is_disposed_ends_what_runs_on_it(Transport transport)
    {
        var pools = new PoisonPoolFactory();
        var factory = Create(transport, pools);
        var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint, socket => socket.ReceiveBufferSize = 4096);
        var connection = (await listener.AcceptAsync(Wait.Token))!;
        // Much is lent to the library at that moment.
        var writing = connection.Transport.Output.WriteAsync(Pattern.Bytes(5_000_000)).AsTask();
        await client.ReceiveAsync(1000);
        await factory.DisposeAsync().AsTask().Soon();
        await client.ExpectResetAsync();
        try
        {
            Assert.True((await writing.Soon()).IsCompleted);
        }
        catch (ConnectionAbortedException)
        {
        }
        await Assert.ThrowsAnyAsync<Exception>(() => connection.Transport.Input.ReadAsync(Wait.Token).AsTask());
        await connection.DisposeAsync().AsTask().Soon();
        Assert.Null(await listener.AcceptAsync());
        pools.Verify();
        Assert.Equal(0, pools.Rented);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Loops_that_end_while_others_wake_them_answer_everybody(Transport transport)
    {
        for (var round = 0; round < 10; round++)
        {
            var factory = Create(transport);
            await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
            var loops = factory.Group!.Loops;
            var asking = Enumerable.Range(0, 4).Select(_ => Task.Run(async () =>
            {
                while (loops.Any(loop => !loop.Ended.IsCompleted))
                {
                    await Task.WhenAll(loops.Select(loop => loop.TurnAsync()));
                    await Task.Yield();
                }
            })).ToArray();
            await factory.Group.TurnAllAsync().Soon();
            await factory.DisposeAsync().AsTask().Soon();
            await Task.WhenAll(asking).Soon();
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_bind_that_is_cancelled_leaves_no_listener(Transport transport)
    {
        await using var factory = Create(transport, configure: static options => options.Loops = 1);
        await using var other = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        var free = new IPEndPoint(IPAddress.Loopback, BindScenarios.FreePort());
        using var held = new ManualResetEventSlim();
        factory.Group!.Loops[0].TryPost(_ => held.Wait(Wait.Limit), null);
        // The loop begins to accept after the cancellation.
        var binding = factory.BindAsync(free, new CancellationToken(canceled: true)).AsTask();
        held.Set();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => binding.Soon());
        await using var again = await factory.BindAsync(free);
    }

    /// <summary>
    /// Begins something while a loop ends, which is refused: a connection waits for its client's end, the loop does not wait
    /// for that, and the failure is told in the midst of the loop's end.
    /// </summary>
    private static async Task BeginAtTheEndAsync(Transport transport, Func<LoopGroup, Task> begin)
    {
        var options = new QuoitTransportOptions();
        transport.Configure(options);
        options.Loops = 1;
        using var log = new Interposer();
        var factory = new QuoitTransportFactory(Options.Create(options), log);
        var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        var connection = (await listener.AcceptAsync(Wait.Token))!;
        await connection.Transport.Output.CompleteAsync();
        Assert.Empty(await client.ReceiveToEndAsync());
        Task? begun = null;
        var group = factory.Group!;
        log.Tell = id =>
        {
            if (id.Name == "ConnectionFailed")
            {
                begun = begin(group);
            }
        };
        await factory.DisposeAsync().AsTask().Soon();
        Assert.NotNull(begun);
        await Assert.ThrowsAsync<ObjectDisposedException>(() => begun.Soon());
        await connection.DisposeAsync().AsTask().Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public Task A_bind_that_meets_the_end_of_the_loop_is_refused(Transport transport) =>
        BeginAtTheEndAsync(transport, static group => group.ListenAsync(new IPEndPoint(IPAddress.Loopback, 0), CancellationToken.None));

    /// <summary>A client's socket for the factory to own, and the server's end of its connection.</summary>
    private static async Task<(FileHandleEndPoint Handle, Client Peer)> ConnectedHandleAsync()
    {
        using var listening = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listening.Listen();
        var peer = await Client.ConnectAsync(listening.LocalEndPoint!);
        var given = await listening.AcceptAsync(Wait.Token);
        var handle = new FileHandleEndPoint((ulong)given.SafeHandle.DangerousGetHandle(), FileHandleType.Tcp);
        given.SafeHandle.SetHandleAsInvalid();
        return (handle, peer);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_handle_that_meets_the_end_of_the_loop_is_closed(Transport transport)
    {
        var (handle, peer) = await ConnectedHandleAsync();
        await BeginAtTheEndAsync(
            transport,
            group => PendingConnect.StartAsync(group.Loops[0], handle, [], (int)handle.FileHandle, CancellationToken.None).AsTask());
        Assert.Empty(await peer.ReceiveToEndAsync());
        peer.Dispose();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_handle_that_no_turn_has_taken_over_is_closed(Transport transport)
    {
        var factory = Create(transport, configure: static options => options.Loops = 1);
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
        var (handle, peer) = await ConnectedHandleAsync();
        using var begun = new ManualResetEventSlim();
        using var held = new ManualResetEventSlim();
        factory.Group!.Loops[0].TryPost(
            _ =>
            {
                begun.Set();
                held.Wait(Wait.Limit);
            },
            null);
        Assert.True(begun.Wait(Wait.Limit));
        // It takes up both at once, and then nothing is left for another turn.
        var connecting = factory.ConnectAsync(handle).AsTask();
        var ending = factory.DisposeAsync().AsTask();
        held.Set();
        await ending.Soon();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => connecting.Soon());
        Assert.Empty(await peer.ReceiveToEndAsync());
        peer.Dispose();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_handle_that_no_loop_is_asked_for_is_closed(Transport transport)
    {
        var factory = Create(transport);
        var (cancelled, first) = await ConnectedHandleAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(
            () => factory.ConnectAsync(cancelled, new CancellationToken(canceled: true)).AsTask());
        Assert.Empty(await first.ReceiveToEndAsync());
        first.Dispose();
        await factory.DisposeAsync();
        var (late, second) = await ConnectedHandleAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => factory.ConnectAsync(late).AsTask());
        Assert.Empty(await second.ReceiveToEndAsync());
        second.Dispose();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_bind_behind_the_end_of_one_loop_leaves_the_others_to_accept(Transport transport)
    {
        await using var factory = Create(transport, configure: static options => options.Loops = 3);
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
        await factory.Group!.Loops[1].StopAsync().Soon();
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        for (var number = 0; number < 4; number++)
        {
            using var client = await Client.ConnectAsync(listener.EndPoint);
            await using var connection = (await listener.AcceptAsync(Wait.Token))!;
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Nothing_is_given_up_behind_the_end_of_the_loop(Transport transport)
    {
        var factory = Create(transport, configure: static options => options.Loops = 1);
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
        var loop = factory.Group!.Loops[0];
        await factory.DisposeAsync().AsTask().Soon();
        // As where a cancellation that had come before the end is taken up behind it.
        loop.GiveUp(1);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task The_socket_of_a_connection_is_not_made_behind_its_disposal(Transport transport)
    {
        await using var factory = Create(transport);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        var connection = (await listener.AcceptAsync(Wait.Token))!;
        var feature = connection.Features.Get<IConnectionSocketFeature>()!;
        await connection.DisposeAsync();
        // It waits for the client's end.
        Assert.Empty(await client.ReceiveToEndAsync());
        Assert.Throws<ObjectDisposedException>(() => feature.Socket);
    }

    /// <summary>Is told of what is logged where it is.</summary>
    private sealed class Interposer : ILoggerFactory, ILogger
    {
        public Action<EventId>? Tell { get; set; }

        public ILogger CreateLogger(string categoryName) => this;

        public void AddProvider(ILoggerProvider provider)
        {
        }

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            Tell?.Invoke(eventId);

        public void Dispose()
        {
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task The_socket_of_a_connection_is_asked_for_on_its_loop_and_elsewhere_at_once(Transport transport)
    {
        await using var factory = Create(transport, configure: static options => options.Loops = 1);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        await using var connection = (await listener.AcceptAsync(Wait.Token))!;
        var feature = connection.Features.Get<IConnectionSocketFeature>()!;
        Socket? elsewhere = null;
        var asking = new Thread(() => elsewhere = feature.Socket);
        var onLoop = new TaskCompletionSource<Socket>(TaskCreationOptions.RunContinuationsAsynchronously);
        factory.Group!.Loops[0].TryPost(
            _ =>
            {
                asking.Start();
                // It waits for the loop.
                SpinWait.SpinUntil(() => asking.ThreadState.HasFlag(ThreadState.WaitSleepJoin), Wait.Limit);
                onLoop.SetResult(feature.Socket);
            },
            null);
        var socket = await onLoop.Task.Soon();
        await Task.Run(asking.Join).Soon();
        Assert.Same(socket, elsewhere);
        Assert.Equal(client.Socket.RemoteEndPoint, socket.LocalEndPoint);
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_context_of_whoever_binds_first_is_not_kept(Transport transport)
    {
        // As the first request of an application that connects: what it logs, and whom it serves, would be known by its context.
        var ambient = new AsyncLocal<string?> { Value = "of the first" };
        var met = new TaskCompletionSource<string?>(TaskCreationOptions.RunContinuationsAsynchronously);
        var now = 0L;
        var options = new QuoitTransportOptions();
        transport.Configure(options);
        options.BlockedLoopLimit = TimeSpan.FromMilliseconds(20);
        options.Clock = () => Volatile.Read(ref now);
        using var log = new Interposer();
        log.Tell = id =>
        {
            if (id.Name == "LoopBlocked")
            {
                met.TrySetResult(ambient.Value);
            }
        };
        await using var factory = new QuoitTransportFactory(Options.Create(options), log);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var held = new ManualResetEventSlim();
        var loop = factory.Group!.Loops[0];
        loop.TryPost(_ => held.Wait(Wait.Limit), null);
        await Wait.Until(() => loop.BusySince != 0, () => "the loop is not held");
        Volatile.Write(ref now, Environment.TickCount64 + 1_000_000);
        var known = await met.Task.Soon();
        held.Set();
        Assert.Null(known);
    }

    [Fact]
    public async Task A_handle_that_is_closed_is_refused()
    {
        await using var factory = new QuoitTransportFactory(Options.Create(new QuoitTransportOptions { Loops = 1 }));
        var failure = await Assert.ThrowsAsync<SocketException>(
            () => factory.BindAsync(new FileHandleEndPoint(1_000_000, FileHandleType.Tcp)).AsTask());
        Assert.Contains("1000000", failure.Message, StringComparison.Ordinal);
        Assert.False(factory.CanBind(new DnsEndPoint("localhost", 80)));
        Assert.True(factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0)));
    }
}
