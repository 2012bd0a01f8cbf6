using System.Collections.Concurrent;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using System.Text;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.DependencyInjection;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>
/// No client keeps another from being served, whatever it does; and what it held is free when it has gone. Hundreds of
/// clients keep the pool of threads busy, so nothing else may run meanwhile.
/// </summary>
[Collection(Alone.Name)]
public class FairnessScenarios
{
    /// <summary>Clients that do what others could be kept by.</summary>
    private const int Rude = 24;

    /// <summary>Requests of the client that behaves well.</summary>
    private const int Requests = 20;

    /// <summary>Bytes that are held of a request.</summary>
    private const int ReadLimit = 64 * 1024;

    private const string EndlessRequest = "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n";

    private const string Request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Normal => Transports.Normal;

    /// <summary>What the handlers of rude clients do.</summary>
    private sealed class Handlers
    {
        private readonly TaskCompletionSource _go = new(TaskCreationOptions.RunContinuationsAsynchronously);

        private static readonly string s_long = new('x', 100_000);

        /// <summary>Who writes answers without an end.</summary>
        public ConcurrentQueue<Writer> Writers { get; } = [];

        public void Map(WebApplication application)
        {
            application.MapGet("/", static () => "hello");
            application.MapGet("/long", static () => s_long);
            application.MapGet("/endless", async context =>
            {
                var piece = new byte[50_000];
                var writer = new Writer(context.Features.GetRequiredFeature<IConnectionSocketFeature>().Socket);
                Writers.Enqueue(writer);
                while (!context.RequestAborted.IsCancellationRequested)
                {
                    await writer.WaitAsync(context.Response.Body.WriteAsync(piece));
                    // Writes to a connection that is gone end at once, and that it is gone is told by a thread of the pool, which such
                    // loops would have for themselves.
                    await Task.Yield();
                }
            });
            application.MapPost("/unread", () => _go.Task);
        }

        /// <summary>Has those end that do not read what they are sent: nothing else tells them that their clients have gone.</summary>
        public void Go() => _go.TrySetResult();
    }

    /// <summary>The handler of a client that may not read.</summary>
    private sealed class Writer
    {
        private readonly Socket _socket;
        private volatile bool _waits;

        public Writer(Socket socket)
        {
            _socket = socket;
            // Many times what the client has room for: once it is full, what still goes to the client makes no room in it. The
            // kernel would lengthen it by and by.
            socket.SendBufferSize = 128 * 1024;
        }

        /// <summary>Its last write waits, and the kernel takes no more either.</summary>
        public bool IsStuck => _waits && !_socket.Poll(TimeSpan.Zero, SelectMode.SelectWrite);

        public async Task WaitAsync(ValueTask writing)
        {
            _waits = !writing.IsCompleted;
            await writing;
            _waits = false;
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task Clients_that_pipeline_requests_and_read_no_answer_hold_up_nobody(Transport transport)
    {
        // With answers long enough that a few fill all there is between the two.
        var requests = Encoding.ASCII.GetBytes(string.Concat(Enumerable.Repeat("GET /long HTTP/1.1\r\nHost: x\r\n\r\n", 500)));
        return HoldUpNobodyAsync(transport, SendUntilGoneAsync, AreAllPausedAsync);

        async Task SendUntilGoneAsync(Client client)
        {
            while (true)
            {
                await client.SendAsync(requests);
            }
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task Clients_whose_requests_nobody_reads_hold_up_nobody(Transport transport) =>
        HoldUpNobodyAsync(transport, UploadUntilGoneAsync, AreAllPausedAsync);

    private static async Task UploadUntilGoneAsync(Client client)
    {
        await client.SendAsync("POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
        var piece = new byte[50_000];
        while (true)
        {
            await client.SendAsync(piece);
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task Clients_that_stop_reading_hold_up_nobody(Transport transport)
    {
        return HoldUpNobodyAsync(
            transport,
            static async client =>
            {
                await client.SendAsync(EndlessRequest);
                await client.ReceiveAsync(1000);
            },
            static (_, handlers) => AreStuckAsync(handlers, Rude));
    }

    /// <summary>The server has stopped receiving from all rude clients.</summary>
    private static Task AreAllPausedAsync(TestServer server, Handlers handlers) =>
        Wait.Until(() => Paused(server) == Rude, () => $"{Paused(server)} of {Rude} are paused");

    /// <summary>So many handlers can write no more.</summary>
    private static Task AreStuckAsync(Handlers handlers, int writers)
    {
        int Stuck() => handlers.Writers.Count(static writer => writer.IsStuck);
        return Wait.Until(() => Stuck() == writers, () => $"{Stuck()} of {writers} writers are stuck");
    }

    /// <summary>Connections that were paused, some of them more than once: the event's name is that of sockets or ours.</summary>
    private static int Paused(TestServer server) => server.Log.Lines
        .Where(static line => line.Id.Name is "ConnectionPause" or "ConnectionPaused").Select(static line => line.Text).Distinct().Count();

    private static async Task HoldUpNobodyAsync(Transport transport, Func<Client, Task> act, Func<TestServer, Handlers, Task> haveActed)
    {
        var handlers = new Handlers();
        await using var server = await StartAsync(transport, handlers);
        var rude = new List<Client>();
        var acting = new List<Task>();
        using (var good = await Client.ConnectAsync(server.EndPoint))
        {
            for (var index = 0; index < Rude; index++)
            {
                // So that little is on the way, and what matters is what the server holds.
                rude.Add(await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 4096));
                acting.Add(act(rude[^1]));
            }
            // While they are at it, and when they have done what they can.
            await BeAnsweredAsync(good);
            await haveActed(server, handlers).Soon();
            await BeAnsweredAsync(good);
            using var late = await Client.ConnectAsync(server.EndPoint);
            await BeAnsweredAsync(late);
            for (var index = 0; index < Rude; index++)
            {
                if (index % 2 == 0)
                {
                    rude[index].Reset();
                }
                rude[index].Dispose();
            }
            handlers.Go();
            await Task.WhenAll(acting).ContinueWith(static _ => { }, TaskScheduler.Default).Soon();
            await BeAnsweredAsync(good);
        }
        if (transport.IsQuoit)
        {
            await LoopState.NothingLeftAsync(server.Loops!);
        }
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
    }

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_client_that_reads_an_endless_answer_as_fast_as_it_comes_holds_up_nobody(Transport transport)
    {
        const int Piece = 64 * 1024, ShareOfTurn = 4 * 1024 * 1024;
        TestServer server = null!;
        var most = 0L;
        await using (server = await TestServer.RawAsync(
            transport,
            async connection =>
            {
                var endless = await EchoUntilEndlessAsync(connection, () => !transport.Inline || server.Loops!.Loops[0].OnThread);
                var piece = new byte[Piece];
                var (turn, inTurn) = (0L, 0L);
                while (endless && !(await connection.Transport.Output.WriteAsync(piece)).IsCompleted)
                {
                    if (transport.Inline)
                    {
                        var now = server.Loops!.Loops[0].Turn;
                        inTurn = now == turn ? inTurn + Piece : Piece;
                        turn = now;
                        most = Math.Max(most, inTurn);
                    }
                }
            },
            static options => options.Loops = 1))
        {
            using var good = await Client.ConnectAsync(server.EndPoint);
            using (var fast = await Client.ConnectAsync(server.EndPoint))
            {
                var got = 0L;
                var reading = await BeginEndlessAsync(fast, count => Interlocked.Add(ref got, count));
                for (var number = 0; number < Requests; number++)
                {
                    await good.SendAsync("?");
                    await good.ReceiveAsync(1);
                    var before = Volatile.Read(ref got);
                    await Wait.Until(() => Volatile.Read(ref got) > before, () => "the other one is held up");
                }
                fast.Reset();
                await reading.Soon();
            }
        }
        // But for the last call's bytes, and what is left for the next turn.
        Assert.InRange(most, 0, ShareOfTurn + (2 * Piece));
    }

    /// <summary>Sends back what comes until an endless answer is asked for, by an E; false if none is.</summary>
    private static async Task<bool> EchoUntilEndlessAsync(ConnectionContext connection, Func<bool> ready)
    {
        var (input, output) = (connection.Transport.Input, connection.Transport.Output);
        while (true)
        {
            var result = await input.ReadAsync();
            var endless = !result.Buffer.IsEmpty && result.Buffer.FirstSpan[0] == (byte)'E';
            input.AdvanceTo(result.Buffer.End);
            if (result.IsCompleted || (endless && ready()))
            {
                return endless;
            }
            await output.WriteAsync(new byte[1]);
        }
    }

    /// <summary>Asks for an endless answer and takes it, without a look at it, until the client is disposed.</summary>
    private static async Task<Task> BeginEndlessAsync(Client client, Action<int> took)
    {
        // A handler begins on a thread of the pool, and says no until it runs where it is to.
        var answer = 0;
        while (answer < 2)
        {
            await client.SendAsync("E");
            answer = await client.Socket.ReceiveAsync(new byte[64], SocketFlags.None, Wait.Token);
        }
        var reading = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        new Thread(() =>
        {
            var buffer = new byte[1 << 20];
            try
            {
                // The kernel drops what it would copy (tcp(7)): no writer is as fast.
                for (var count = 1; count > 0;)
                {
                    count = client.Socket.Receive(buffer, SocketFlags.Truncated);
                    took(count);
                }
            }
            catch (Exception failure) when (failure is SocketException or ObjectDisposedException)
            {
                // As it was told.
            }
            reading.SetResult();
        })
        { IsBackground = true }.Start();
        return reading.Task;
    }

    [Fact]
    public async Task What_is_held_of_one_client_is_bounded_as_on_sockets()
    {
        // The slots that one connection may fill in a turn, and blocks of the pools that are used in part.
        const long Turn = 16 * 16 * 1024, Blocks = 4 * 4096;
        var held = new Dictionary<(Transport, bool, bool), Task<long>>();
        foreach (var transport in Transports.Each.Where(static transport => !transport.Tiny))
        {
            foreach (var (ofKestrel, upload) in new[] { (false, false), (false, true), (true, false), (true, true) })
            {
                held.Add((transport, ofKestrel, upload), HeldOfOneAsync(transport, ofKestrel, upload));
            }
        }
        await Task.WhenAll(held.Values).Soon();
        foreach (var ((transport, ofKestrel, upload), bytes) in held)
        {
            var oracle = await held.Single(other => !other.Key.Item1.IsQuoit && other.Key.Item2 == ofKestrel && other.Key.Item3 == upload).Value;
            var (least, most) = upload ? (oracle - Blocks, oracle + Turn + Blocks) : (oracle - Blocks, oracle + Blocks);
            Assert.True(
                await bytes >= least && await bytes <= most,
                $"{transport}, limit of {(ofKestrel ? "Kestrel" : "the transport")}, {(upload ? "upload" : "download")}: {await bytes} bytes, {oracle} on sockets");
        }
    }

    /// <summary>The most that a server holds in its pools of a client whose request is not read, or that does not read its
    /// answer.</summary>
    /// <param name="transport">What it runs over.</param>
    /// <param name="ofKestrel">Whether the limits are Kestrel's own, or the transport's.</param>
    /// <param name="upload">Whether it is the request that is long.</param>
    private static async Task<long> HeldOfOneAsync(Transport transport, bool ofKestrel, bool upload)
    {
        const int Limit = 40_000;
        var handlers = new Handlers();
        await using var server = await TestServer.StartAsync(
            transport,
            kestrel =>
            {
                if (ofKestrel)
                {
                    kestrel.Limits.MaxRequestBufferSize = Limit;
                    kestrel.Limits.MaxResponseBufferSize = Limit;
                }
                kestrel.Listen(IPAddress.Loopback, 0);
            },
            handlers.Map,
            options =>
            {
                options.DrainDeadline = TimeSpan.FromMilliseconds(100);
                if (!ofKestrel)
                {
                    (options.MaxReadBufferSize, options.MaxWriteBufferSize) = (Limit, Limit);
                }
            },
            services => services.Configure<SocketTransportOptions>(options =>
            {
                if (!ofKestrel)
                {
                    (options.MaxReadBufferSize, options.MaxWriteBufferSize) = (Limit, Limit);
                }
            }));
        using var client = await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 4096);
        var sending = Task.CompletedTask;
        if (upload)
        {
            sending = UploadUntilGoneAsync(client);
            await Wait.Until(() => Paused(server) == 1, () => "it is not paused");
        }
        else
        {
            await client.SendAsync(EndlessRequest);
            // The pipe was full when the last write began to wait.
            await AreStuckAsync(handlers, 1);
        }
        var most = server.Pools.MostRented * PoisonPoolFactory.BlockSize;
        client.Reset();
        handlers.Go();
        await sending.ContinueWith(static _ => { }, TaskScheduler.Default).Soon();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        return most;
    }

    [Fact]
    public Task Who_takes_nothing_is_let_go_while_memory_is_short() => Task.WhenAll(
        Transports.Each.Where(static transport => transport is { IsQuoit: true, Inline: false, Tiny: false }).Select(LetSilentClientsGoAsync));

    private static async Task LetSilentClientsGoAsync(Transport transport)
    {
        var handlers = new Handlers();
        await using var server = await TestServer.HttpAsync(
            transport,
            handlers.Map,
            options: static options =>
            {
                options.Loops = 1;
                // Of which the answers of a few clients are more than half.
                options.SendChunks = 64;
                options.StallLimit = TimeSpan.Zero;
            });
        var silent = new List<Client>();
        for (var index = 0; index < Rude; index++)
        {
            silent.Add(await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 4096));
            await silent[^1].SendAsync(EndlessRequest);
        }
        using var good = await Client.ConnectAsync(server.EndPoint);
        await Wait.Until(
            () => LoopState.Read(server.Loops!, "stalled_closed") > 0, () => $"nobody is let go: {LoopState.Read(server.Loops!, "queued_bytes")} bytes are queued");
        await BeAnsweredAsync(good);
        const string Reason = "The client took nothing while the loop's memory was short.";
        await Wait.Until(() => server.Log.Lines.Any(static line => line.Text.Contains(Reason, StringComparison.Ordinal)), () => "it is not told why");
        silent.ForEach(static client => client.Dispose());
    }

    private static Task<TestServer> StartAsync(Transport transport, Handlers handlers) => TestServer.HttpAsync(
        transport,
        handlers.Map,
        options: static options =>
        {
            options.Loops = 1;
            options.MaxReadBufferSize = ReadLimit;
            // So long may the reader take, who does not come, for what io_uring has received past the pause.
            options.DrainDeadline = TimeSpan.FromMilliseconds(100);
        },
        services: static services => services.Configure<SocketTransportOptions>(static sockets =>
        {
            sockets.IOQueueCount = 1;
            sockets.MaxReadBufferSize = ReadLimit;
        }));

    private static async Task BeAnsweredAsync(Client client)
    {
        for (var number = 0; number < Requests; number++)
        {
            await client.SendAsync(Request);
            await client.ReceiveUntilAsync("hello");
        }
    }
}
