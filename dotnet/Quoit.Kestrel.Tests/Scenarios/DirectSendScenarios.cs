using System.IO.Pipelines;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Sends of the application's threads while the loop sleeps, in every mixture with those of the loop.</summary>
public class DirectSendScenarios
{
    private static readonly byte[] s_question = new byte[1];

    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    private static long Count(TestServer server, string name) => LoopState.Read(server.Loops!, name);

    /// <summary>A server with one connection, which writes bytes of the pattern alone, so that it sends them itself. Over
    /// sockets as often.</summary>
    private static async Task WithDirectAsync(Transport transport, Func<ConnectionContext, Client, TestServer, long, Task> scenario)
    {
        var accepted = new TaskCompletionSource<ConnectionContext>(TaskCreationOptions.RunContinuationsAsynchronously);
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(
            transport,
            // A second one has its bytes back.
            connection => accepted.TrySetResult(connection) ? done.Task : connection.Transport.Input.CopyToAsync(connection.Transport.Output),
            static options => options.Loops = 1);
        using var client = await Client.ConnectAsync(server.EndPoint);
        try
        {
            var connection = await accepted.Task.Soon();
            var sent = 0L;
            await Wait.Until(
                () =>
                {
                    Task.Run(async () =>
                    {
                        await connection.Transport.Output.WriteAsync(Pattern.Bytes(1, sent));
                        Pattern.Check(await client.ReceiveAsync(1), sent++);
                    }).Soon().GetAwaiter().GetResult();
                    return transport.IsQuoit ? Count(server, "direct_sends") > 1 : sent == 5;
                },
                () => $"of {sent} bytes, each written alone, {(transport.IsQuoit ? Count(server, "direct_sends") : 0)} were sent directly");
            await scenario(connection, client, server, sent);
        }
        finally
        {
            done.SetResult();
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task All_bytes_come_before_the_end(Transport transport) => WithDirectAsync(transport, static async (connection, client, _, sent) =>
    {
        const int Size = 3_000_000;
        var output = connection.Transport.Output;
        var writing = Task.Run(async () =>
        {
            await output.WriteAsync(Pattern.Bytes(Size, sent));
            await output.WriteAsync(Pattern.Bytes(1, sent + Size));
            await output.CompleteAsync();
        });
        var all = await client.ReceiveToEndAsync();
        await writing.Soon();
        Assert.Equal(Size + 1, all.Length);
        Pattern.Check(all, sent);
    });

    [Theory]
    [MemberData(nameof(All))]
    public Task An_end_with_a_failure_is_a_reset(Transport transport) => WithDirectAsync(transport, static async (connection, client, _, sent) =>
    {
        var output = connection.Transport.Output;
        await output.WriteAsync(Pattern.Bytes(1, sent));
        await output.CompleteAsync(new InvalidOperationException("half a response"));
        await client.ExpectResetAsync();
    });

    [Theory]
    [MemberData(nameof(All))]
    public Task An_abort_is_a_reset(Transport transport) => WithDirectAsync(transport, static async (connection, client, _, sent) =>
    {
        await connection.Transport.Output.WriteAsync(Pattern.Bytes(1, sent));
        connection.Abort(new ConnectionAbortedException("as the test asks"));
        await client.ExpectResetAsync();
    });

    /// <summary>Whoever finds it out. What the reader is told is the same as ever here; over sockets it finds an end in order if
    /// the writer is told first, as the kernel tells it once.</summary>
    [Theory]
    [MemberData(nameof(All))]
    public Task A_client_that_resets_ends_the_writer(Transport transport) => WithDirectAsync(transport, async (connection, client, _, _) =>
    {
        var piece = new byte[100_000];
        var output = connection.Transport.Output;
        var writing = Task.Run(async () =>
        {
            FlushResult result;
            do
            {
                result = await output.WriteAsync(piece);
            }
            while (!result.IsCompleted);
        });
        await client.ReceiveAsync(500_000);
        client.Reset();
        await writing.Soon();
        if (transport.IsQuoit)
        {
            await Assert.ThrowsAsync<ConnectionResetException>(() => connection.Transport.Input.ReadAsync().Soon());
        }
    });

    [Theory]
    [MemberData(nameof(All))]
    public Task A_server_that_stops_in_the_midst_of_sends_ends_them(Transport transport) => WithDirectAsync(transport, static async (connection, client, server, _) =>
    {
        var piece = new byte[100_000];
        var output = connection.Transport.Output;
        var writing = Task.Run(async () =>
        {
            while (!(await output.WriteAsync(piece)).IsCompleted)
            {
            }
        });
        await client.ReceiveAsync(500_000);
        using var now = new CancellationTokenSource();
        await now.CancelAsync();
        await server.StopAsync(now.Token).Soon();
        await writing.Soon();
    });

    /// <summary>Pieces of all sizes to a client that is slow at times, while another keeps the loop awake at times.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public Task Bytes_keep_their_order_whoever_sends_them(Transport transport) => WithDirectAsync(transport, static async (connection, client, server, sent) =>
    {
        const int Least = 6_000_000;
        var output = connection.Transport.Output;
        var direct = Count(server, "direct_sends");
        var all = Count(server, "sends");
        bool BothKinds()
        {
            // In this order, as both go on meanwhile: what is true now stays so.
            var sends = Count(server, "sends") - all;
            var more = Count(server, "direct_sends") - direct;
            return more > 10 && sends > more + 10;
        }
        using var stop = new CancellationTokenSource();
        var other = Task.Run(async () =>
        {
            using var noisy = await Client.ConnectAsync(server.EndPoint);
            while (!stop.IsCancellationRequested)
            {
                await noisy.SendAsync(s_question);
                await noisy.ReceiveAsync(1);
            }
        });
        long to = 0;
        var writing = Task.Run(async () =>
        {
            var random = new Random(32);
            var at = sent;
            var end = Environment.TickCount64 + (long)Wait.Limit.TotalMilliseconds;
            while (at < sent + Least || (!BothKinds() && Environment.TickCount64 < end))
            {
                var size = random.Next(4) switch
                {
                    0 => random.Next(1, 10),
                    1 => random.Next(1, 2_000),
                    2 => random.Next(1, 40_000),
                    _ => random.Next(1, 200_000),
                };
                await output.WriteAsync(Pattern.Bytes(size, at));
                at += size;
                if (random.Next(3) == 0)
                {
                    await Task.Yield();
                }
            }
            Volatile.Write(ref to, at);
            await output.CompleteAsync();
        });
        var buffer = new byte[50_000];
        var received = sent;
        var taking = new Random(33);
        while (true)
        {
            var count = await client.Socket.ReceiveAsync(buffer.AsMemory(0, taking.Next(1, buffer.Length)), Wait.Token);
            if (count == 0)
            {
                break;
            }
            Pattern.Check(buffer.AsSpan(0, count), received);
            received += count;
        }
        await writing.Soon();
        await stop.CancelAsync();
        await other.Soon();
        Assert.Equal(Volatile.Read(ref to), received);
        Assert.True(BothKinds(), $"{Count(server, "direct_sends") - direct} of {Count(server, "sends") - all} sends were direct");
    });
}
