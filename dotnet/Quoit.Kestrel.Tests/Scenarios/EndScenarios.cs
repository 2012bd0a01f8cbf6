using System.Net;
using System.Net.Sockets;
using System.Runtime.InteropServices;
using System.Threading.Channels;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Ends that come while something waits: a paused connection, a full one, one that is half closed.</summary>
public partial class EndScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    /// <summary>Sends until the connection ends, by whomever, or it is told to stop.</summary>
    internal static Task SendUntilGoneAsync(Client client, Action<int>? sent = null, CancellationToken stop = default) => Task.Run(async () =>
    {
        var piece = new byte[64 * 1024];
        try
        {
            while (true)
            {
                var length = await client.Socket.SendAsync(piece.AsMemory(), stop);
                sent?.Invoke(length);
            }
        }
        catch (Exception failure) when (failure is SocketException or ObjectDisposedException or OperationCanceledException)
        {
        }
    }, CancellationToken.None);

    /// <summary>Sends until the peer takes no more. Returns the task that goes on sending until the connection
    /// ends or it is told to stop.</summary>
    internal static async Task<Task> SendUntilFullAsync(Client client, CancellationToken stop = default)
    {
        var sent = 0L;
        var sending = SendUntilGoneAsync(client, length => Interlocked.Add(ref sent, length), stop);
        await Wait.StandsStillAsync(() => Interlocked.Read(ref sent));
        return sending;
    }

    /// <summary>As accept tells it, however soon the reset comes.</summary>
    [Theory]
    [MemberData(nameof(All))]
    public async Task The_address_of_a_client_that_has_reset_is_known(Transport transport)
    {
        const int Rounds = 50;
        var seen = Channel.CreateUnbounded<EndPoint?>();
        await using var server = await TestServer.RawAsync(transport, connection =>
        {
            seen.Writer.TryWrite(connection.RemoteEndPoint);
            return Task.CompletedTask;
        });
        var expected = new HashSet<EndPoint>();
        for (var round = 0; round < Rounds; round++)
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            expected.Add(client.Socket.LocalEndPoint!);
            client.Reset();
        }
        for (var round = 0; round < Rounds; round++)
        {
            var peer = await seen.Reader.ReadAsync(Wait.Token);
            Assert.NotNull(peer);
            Assert.Contains(peer, expected);
        }
    }

    // Kestrel itself refers to its connections weakly, and sockets not at all to one that they neither receive for nor send
    // on: only what the test keeps of one keeps the garbage collector from taking it away before the server is dropped, and
    // then its blocks would never be returned.
    [Theory]
    [MemberData(nameof(All))]
    public Task A_server_that_is_dropped_while_a_client_is_held_back(Transport transport) =>
        DropWhileHeldBackAsync(transport, collectGarbage: false);

    [Theory]
    [MemberData(nameof(Quoit))]
    public Task A_client_that_is_held_back_is_not_lost_to_the_garbage_collector(Transport transport) =>
        DropWhileHeldBackAsync(transport, collectGarbage: true);

    private static async Task DropWhileHeldBackAsync(Transport transport, bool collectGarbage)
    {
        var begun = new TaskCompletionSource<HttpContext?>(TaskCreationOptions.RunContinuationsAsynchronously);
        var server = await TestServer.HttpAsync(transport, application => application.MapPost("/", async context =>
        {
            begun.TrySetResult(collectGarbage ? null : context);
            await Task.Delay(Timeout.Infinite, context.RequestAborted);
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        var sending = await HoldBackAsync(client);
        var kept = await begun.Task.Soon();
        if (collectGarbage)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            GC.Collect();
        }
        await server.DropAsync().AsTask().Soon();
        await sending.Soon();
        Assert.Equal(0, server.Pools.Rented);
        server.Pools.Verify();
        GC.KeepAlive(kept);
    }

    /// <summary>Begins a request whose body is longer than what anybody takes, and sends it until nothing is taken any more.</summary>
    internal static async Task<Task> HoldBackAsync(Client client)
    {
        await client.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
        return await SendUntilFullAsync(client);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_client_that_goes_when_both_directions_are_full(Transport transport)
    {
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapPost("/", async context =>
        {
            try
            {
                await context.Request.Body.CopyToAsync(context.Response.Body);
            }
            catch (Exception failure) when (failure is IOException or OperationCanceledException)
            {
                ended.SetResult();
                throw;
            }
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        var sending = await HoldBackAsync(client);
        client.Reset();
        await sending.Soon();
        await ended.Task.Soon();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
    }

    [Theory]
    [MemberData(nameof(Transports.Quoit), MemberType = typeof(Transports))]
    public async Task A_request_right_before_its_clients_end_has_its_response(Transport transport)
    {
        // Kestrel gives up what it has not sent when the connection is called closed: on sockets it is a matter of time whether
        // that is before the response. Here it never is, unless the response takes longer than the grace.
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/", async context =>
            {
                await Task.Yield();
                await context.Response.WriteAsync("response");
            }),
            options: static options => options.EndGrace = TimeSpan.FromMinutes(1));
        for (var round = 0; round < 20; round++)
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            client.EndSending();
            Assert.EndsWith("response\r\n0\r\n\r\n", await client.ReceiveTextToEndAsync());
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_request_is_aborted_when_its_client_ends_its_direction(Transport transport)
    {
        // Kestrel's way with a client that will not read, as it has to suppose; over every transport.
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            begun.SetResult();
            await aborted.Task;
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await begun.Task.Soon();
        client.EndSending();
        await aborted.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task ConnectionClosed_is_told_when_the_server_ends_first(Transport transport)
    {
        var closed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            using var registration = connection.ConnectionClosed.Register(() => closed.TrySetResult());
            await connection.Transport.Output.WriteAsync("bye"u8.ToArray());
            await connection.Transport.Output.CompleteAsync();
            await connection.Transport.Input.CompleteAsync();
            await closed.Task;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        Assert.Equal("bye", await client.ReceiveTextToEndAsync());
        client.EndSending();
        await closed.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task What_is_asked_of_a_connection_that_is_gone_does_not_meet_the_next(Transport transport)
    {
        // The next takes the place of the first, in the loop as in the table of descriptors.
        var connections = Channel.CreateUnbounded<ConnectionContext>();
        await using var server = await TestServer.RawAsync(
            transport,
            async connection =>
            {
                connections.Writer.TryWrite(connection);
                await connection.Transport.Input.CopyToAsync(connection.Transport.Output);
            },
            static options => options.Loops = 1);
        ConnectionContext gone;
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            gone = await connections.Reader.ReadAsync(Wait.Token);
            client.EndSending();
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        if (server.Loops is { } loops)
        {
            await LoopState.NothingLeftAsync(loops);
        }
        using var next = await Client.ConnectAsync(server.EndPoint);
        await next.SendAsync("before");
        await next.ReceiveUntilAsync("before");
        gone.Abort(new ConnectionAbortedException("too late"));
        if (server.Loops is { } same)
        {
            await same.Loops[0].TurnAsync().Soon();
        }
        await next.SendAsync("behind");
        next.EndSending();
        Assert.Equal("behind", await next.ReceiveTextToEndAsync());
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task An_abort_without_a_reason_gives_up_what_a_peer_does_not_take(Transport transport) =>
        AbortFullAsync(transport, static (_, write, abort) =>
        {
            write();
            abort();
            return Task.CompletedTask;
        });

    /// <summary>Of two writes of one turn the first is copied, and the second is lent when that was taken: neither is to be waited
    /// for when the abort comes in between.</summary>
    [Theory]
    [MemberData(nameof(All))]
    public Task An_abort_without_a_reason_gives_up_what_is_yet_to_be_lent(Transport transport) =>
        AbortFullAsync(transport, static async (loop, write, abort) =>
        {
            if (loop is null)
            {
                write();
                write();
                abort();
                return;
            }
            await InOneTurnAsync(loop, write, () =>
            {
                write();
                abort();
            }).Soon();
        });

    /// <summary>Closes a connection as Kestrel does one whose peer has ended, where no byte of it can be sent any more. The
    /// scenario is given the loop, if there is one, what writes a little, and what aborts.</summary>
    private static async Task AbortFullAsync(Transport transport, Func<Loop?, Action, Action, Task> scenario)
    {
        var accepted = new TaskCompletionSource<ConnectionContext>(TaskCreationOptions.RunContinuationsAsynchronously);
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(
            transport,
            connection =>
            {
                accepted.SetResult(connection);
                return done.Task;
            },
            static options =>
            {
                options.Loops = 1;
                options.DrainDeadline = TimeSpan.FromMilliseconds(100);
            });
        using var client = await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 4096);
        var connection = await accepted.Task.Soon();
        await FillAsync(connection.Features.GetRequiredFeature<IConnectionSocketFeature>().Socket);
        var flushes = new List<Task>();
        await scenario(
            server.Loops?.Loops[0],
            () => flushes.Add(connection.Transport.Output.WriteAsync(new byte[1000]).AsTask()),
            () => connection.Abort(null!));
        await Task.WhenAll(flushes).Soon();
        done.SetResult();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        if (server.Loops is { } loops)
        {
            await LoopState.NothingLeftAsync(loops);
        }
    }

    /// <summary>Has the loop run the second when it has sent what the first has written, and before the turn that takes it.</summary>
    private static Task InOneTurnAsync(Loop loop, Action first, Action second)
    {
        var ran = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        void PostSecond() => loop.TryPost(
            _ =>
            {
                second();
                ran.SetResult();
            },
            null);
        void RunFirst(object? state)
        {
            first();
            // What others post comes behind what the loop was given on its own thread.
            Task.Run(PostSecond).Wait(Wait.Limit);
        }
        // What was posted is run before what that has given to the loop, and a turn comes before what this gives to it.
        loop.TryPost(_ => loop.Schedule(RunFirst, null), null);
        return ran.Task;
    }

    /// <summary>Sends until the kernel of either side takes no more.</summary>
    private static Task FillAsync(Socket socket)
    {
        const int DontWait = 0x40;
        var piece = new byte[1000];
        var filled = 0L;
        return Wait.StandsStillAsync(() =>
        {
            nint sent;
            while ((sent = Send((int)socket.Handle, piece, (nuint)piece.Length, DontWait)) > 0)
            {
                filled += sent;
            }
            return filled;
        });
    }

    [LibraryImport("libc", EntryPoint = "send", SetLastError = true)]
    private static partial nint Send(int descriptor, byte[] bytes, nuint length, int flags);
}
