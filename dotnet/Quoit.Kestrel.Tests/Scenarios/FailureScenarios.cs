using System.Buffers;
using System.Collections.Concurrent;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Observability;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What the transport is given by the application, and fails: its pool of blocks, its log. That has an end for the
/// connection that it was called for, and for no other.</summary>
public class FailureScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    [Theory]
    [MemberData(nameof(All))]
    public async Task Without_a_block_for_what_was_received_that_connection_ends_and_no_other(Transport transport)
    {
        var started = new SemaphoreSlim(0);
        var failed = new TaskCompletionSource<Exception>(TaskCreationOptions.RunContinuationsAsynchronously);
        var closed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            started.Release();
            try
            {
                await connection.Transport.Input.CopyToAsync(connection.Transport.Output);
            }
            catch (InsufficientMemoryException failure)
            {
                using var registration = connection.ConnectionClosed.Register(closed.SetResult);
                failed.SetResult(failure);
                await closed.Task;
            }
        });
        using var first = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(first);
        using (var second = await Client.ConnectAsync(server.EndPoint))
        {
            await started.WaitAsync(Wait.Token);
            await started.WaitAsync(Wait.Token);
            server.Pools.IsExhausted = true;
            await second.SendAsync(Pattern.Bytes(10_000));
            Assert.Equal("no block is left", (await failed.Task.Soon()).Message);
            await closed.Task.Soon();
            server.Pools.IsExhausted = false;
            await EndsAsync(second);
        }
        await IsServedAsync(first);
        using var third = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(third);
        first.Dispose();
        third.Dispose();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        if (transport.IsQuoit)
        {
            await LoopState.NothingLeftAsync(server.Loops!);
        }
    }

    /// <summary>Ours alone: what fails here as a connection is made is not there on sockets.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_connection_that_cannot_be_made_is_reset_and_the_next_is_served(Transport transport)
    {
        var failing = new FailsOnce();
        await using var server = await TestServer.RawAsync(
            transport,
            static connection => connection.Transport.Input.CopyToAsync(connection.Transport.Output),
            options => options.Making = failing.Call);
        // It may come before the client knows that it is connected.
        var reset = await Assert.ThrowsAsync<SocketException>(async () =>
        {
            using var first = await Client.ConnectAsync(server.EndPoint);
            await first.ReceiveToEndAsync();
        });
        Assert.Equal(SocketError.ConnectionReset, reset.SocketErrorCode);
        var line = Assert.Single(server.Log.Lines, static line => line.Id.Name == "ConnectionNotMade");
        Assert.Equal(LogLevel.Error, line.Level);
        Assert.Contains(FailsOnce.Text, line.Text, StringComparison.Ordinal);
        using (var second = await Client.ConnectAsync(server.EndPoint))
        {
            await IsServedAsync(second);
        }
        await LoopState.NothingLeftAsync(server.Loops!);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task An_attempt_whose_connection_cannot_be_made_fails_and_the_next_succeeds(Transport transport)
    {
        using var listening = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listening.Listen();
        var failing = new FailsOnce();
        await using var factory = FactoryScenarios.Create(transport, configure: options => options.Making = failing.Call);
        var failure = await Assert.ThrowsAsync<IOException>(() => factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token).AsTask());
        Assert.Equal(FailsOnce.Text, failure.Message);
        using (var peer = await listening.AcceptAsync(Wait.Token))
        {
            var reset = await Assert.ThrowsAsync<SocketException>(() => peer.ReceiveAsync(new byte[1], Wait.Token).AsTask());
            Assert.Equal(SocketError.ConnectionReset, reset.SocketErrorCode);
        }
        await using (await factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token))
        {
            (await listening.AcceptAsync(Wait.Token)).Dispose();
        }
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    /// <summary>What may be logged of a connection, by what its client asks for with its first byte.</summary>
    private static async Task LoggedAsync(ConnectionContext connection)
    {
        var (input, output) = (connection.Transport.Input, connection.Transport.Output);
        var result = await input.ReadAsync();
        var asked = result.Buffer.FirstSpan[0];
        input.AdvanceTo(result.Buffer.End);
        switch (asked)
        {
            case (byte)'a':
                connection.Abort(new ConnectionAbortedException("on purpose"));
                break;
            case (byte)'f':
                await output.CompleteAsync(new InvalidOperationException("on purpose"));
                break;
            case (byte)'i':
                await input.CompleteAsync(new InvalidOperationException("on purpose"));
                break;
            case (byte)'p':
                // More than it may send before it is paused.
                result = await input.ReadAtLeastAsync(3_000_000);
                input.AdvanceTo(result.Buffer.End);
                break;
        }
        await output.WriteAsync("served"u8.ToArray());
        await input.CopyToAsync(output);
    }

    private static async Task AskAsync(Client client, char what)
    {
        await client.SendAsync($"{what}");
        switch (what)
        {
            case 'p':
                try
                {
                    await client.SendAsync(new byte[3_000_000]);
                }
                catch (SocketException)
                {
                    // It was ended in the midst.
                }
                break;
            case 'r':
                await client.ReceiveAsync(6);
                client.Reset();
                return;
        }
        client.EndSending();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_log_that_fails_ends_no_other_connection(Transport transport)
    {
        var log = new LogThatFails();
        await using var server = await TestServer.StartAsync(
            transport,
            static kestrel => kestrel.Listen(IPAddress.Loopback, 0, static listening => listening.Run(LoggedAsync)),
            null,
            services: services => services.AddSingleton<ILoggerProvider>(log));
        using var other = await Client.ConnectAsync(server.EndPoint);
        await other.SendAsync("o");
        Assert.Equal("served"u8.ToArray(), await other.ReceiveAsync(6));
        foreach (var what in "eafipr")
        {
            var before = log.Failed;
            log.Fails = true;
            using var client = await Client.ConnectAsync(server.EndPoint);
            await AskAsync(client, what);
            // Each of these is logged in some way.
            await Wait.Until(() => log.Failed > before, () => $"'{what}' is not logged");
            if (transport.IsQuoit && what is not 'r')
            {
                // On sockets it may be left to the garbage collector.
                await EndsInSomeWayAsync(client);
            }
            client.Dispose();
            log.Fails = false;
            await IsServedAsync(other);
        }
        using (var next = await Client.ConnectAsync(server.EndPoint))
        {
            await next.SendAsync("n");
            Assert.Equal("served"u8.ToArray(), await next.ReceiveAsync(6));
        }
        other.Dispose();
        if (transport.IsQuoit)
        {
            await LoopState.NothingLeftAsync(server.Loops!);
        }
    }

    /// <summary>Ours alone: on sockets the process ends with the first, and nobody looks for the second.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_log_that_fails_does_not_end_the_process_where_only_the_pool_waits_for_it(Transport transport)
    {
        var log = new LogThatFails();
        var now = 0L;
        await using var server = await TestServer.StartAsync(
            transport,
            static kestrel => kestrel.Listen(IPAddress.Loopback, 0, static listening => listening.Run(static async connection =>
            {
                connection.ConnectionClosed.Register(static () => throw new InvalidOperationException("on purpose"));
                await connection.Transport.Input.CopyToAsync(connection.Transport.Output);
            })),
            null,
            options =>
            {
                options.BlockedLoopLimit = TimeSpan.FromMilliseconds(20);
                options.Clock = () => Volatile.Read(ref now);
            },
            services => services.AddSingleton<ILoggerProvider>(log));
        log.Fails = true;
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            await IsServedAsync(client);
            client.EndSending();
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        await LoopState.NothingLeftAsync(server.Loops!);
        await Wait.Until(() => log.Names.Contains("ClosedCallbackFailed"), () => "the callback's failure is not logged");
        using var held = new ManualResetEventSlim();
        server.Loops!.Loops[0].TryPost(_ => held.Wait(Wait.Limit), null);
        await Wait.Until(() => server.Loops.Loops[0].BusySince != 0, () => "the loop is not held");
        Volatile.Write(ref now, Environment.TickCount64 + 1_000_000);
        await Wait.Until(() => log.Names.Contains("LoopBlocked"), () => "the loop is not said to be blocked");
        held.Set();
        log.Fails = false;
        using var next = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(next);
    }

    /// <summary>A pool that fails to take a block back, when the transport returns it.</summary>
    [Theory]
    [MemberData(nameof(All))]
    public async Task A_block_that_cannot_be_returned_ends_no_other_connection(Transport transport)
    {
        var unread = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            var (input, output) = (connection.Transport.Input, connection.Transport.Output);
            var result = await input.ReadAsync();
            var asked = result.Buffer.FirstSpan[0];
            // Its block stays where it is.
            input.AdvanceTo(result.Buffer.Start);
            if (asked is (byte)'u')
            {
                // The transport returns it with the rest of what nobody reads.
                await input.CompleteAsync();
                await output.WriteAsync("!"u8.ToArray());
                await unread.Task.Soon();
                return;
            }
            await input.CopyToAsync(output);
        });
        using var other = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(other);
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            await client.SendAsync("u");
            Assert.Equal("!"u8.ToArray(), await client.ReceiveAsync(1));
            server.Pools.FailNextReturn();
            client.Reset();
            await Wait.Until(() => !server.Pools.IsReturnToFail, () => "no block is returned");
            unread.SetResult();
        }
        await IsServedAsync(other);
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            await IsServedAsync(client);
            server.Pools.FailNextReturn();
            try
            {
                await client.SendAsync(Pattern.Bytes(100_000));
                client.EndSending();
                await client.ReceiveToEndAsync();
            }
            catch (SocketException)
            {
            }
            Assert.False(server.Pools.IsReturnToFail);
        }
        await IsServedAsync(other);
        using var next = await Client.ConnectAsync(server.EndPoint);
        await IsServedAsync(next);
        other.Dispose();
        next.Dispose();
        if (transport.IsQuoit)
        {
            await LoopState.NothingLeftAsync(server.Loops!);
        }
    }

    /// <summary>Ours alone: on sockets the disposal fails, and the garbage collector takes the socket.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_connection_is_closed_by_its_disposal_though_a_block_cannot_be_returned(Transport transport)
    {
        var pools = new PoisonPoolFactory();
        await using var factory = FactoryScenarios.Create(transport, pools);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        var connection = (await listener.AcceptAsync(Wait.Token))!;
        await client.SendAsync("hello");
        client.EndSending();
        var result = await connection.Transport.Input.ReadAtLeastAsync(6, Wait.Token);
        connection.Transport.Input.AdvanceTo(result.Buffer.Start);
        // What is left of the input is given back by whoever ends it last: the disposal.
        pools.FailNextReturn();
        await connection.DisposeAsync().AsTask().Soon();
        Assert.False(pools.IsReturnToFail);
        Assert.Empty(await client.ReceiveToEndAsync());
        client.Dispose();
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    private sealed class PoolsThatCannotBeDisposed : IMemoryPoolFactory<byte>
    {
        public MemoryPool<byte> Create(MemoryPoolOptions? options = null) => new Pool();

        private sealed class Pool : MemoryPool<byte>
        {
            public override int MaxBufferSize => Shared.MaxBufferSize;

            public override IMemoryOwner<byte> Rent(int minBufferSize = -1) => Shared.Rent(minBufferSize);

            protected override void Dispose(bool disposing) => throw new InvalidOperationException("on purpose");
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Every_loop_ends_though_a_pool_cannot_be_disposed(Transport transport)
    {
        var options = new QuoitTransportOptions();
        transport.Configure(options);
        options.Loops = 3;
        var factory = new QuoitTransportFactory(Options.Create(options), null, new PoolsThatCannotBeDisposed());
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        await Assert.ThrowsAsync<InvalidOperationException>(() => factory.DisposeAsync().AsTask().Soon());
        Assert.All(factory.Group!.Loops, static loop => Assert.True(loop.Ended.IsCompleted));
    }

    /// <summary>Is called, and fails the first time.</summary>
    private sealed class FailsOnce
    {
        public const string Text = "no room for it";

        private int _called;

        public void Call()
        {
            if (Interlocked.Exchange(ref _called, 1) == 0)
            {
                throw new IOException(Text);
            }
        }
    }

    /// <summary>Has no room for a line of the transport's while it is told to fail.</summary>
    private sealed class LogThatFails : ILoggerProvider
    {
        private readonly ConcurrentQueue<string?> _names = new();
        private volatile bool _fails;

        public bool Fails
        {
            get => _fails;
            set => _fails = value;
        }

        public IEnumerable<string?> Names => _names;

        public int Failed => _names.Count;

        public ILogger CreateLogger(string categoryName) => new Logger(
            this, categoryName is QuoitLog.Category || categoryName.Contains("Transport.Sockets", StringComparison.Ordinal));

        public void Dispose()
        {
        }

        private sealed class Logger(LogThatFails owner, bool isTransports) : ILogger
        {
            public IDisposable? BeginScope<TState>(TState state)
                where TState : notnull => null;

            public bool IsEnabled(LogLevel logLevel) => true;

            public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
            {
                if (isTransports && owner.Fails)
                {
                    owner._names.Enqueue(eventId.Name);
                    throw new IOException("no room in the log");
                }
            }
        }
    }

    private static async Task IsServedAsync(Client client)
    {
        var bytes = Pattern.Bytes(100);
        await client.SendAsync(bytes);
        Assert.Equal(bytes, await client.ReceiveAsync(bytes.Length));
    }

    private static async Task EndsInSomeWayAsync(Client client)
    {
        try
        {
            await client.ReceiveToEndAsync();
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
        }
    }

    /// <summary>In order, or by a reset where the kernel has bytes that nobody read.</summary>
    private static async Task EndsAsync(Client client)
    {
        try
        {
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
        }
    }
}
