using System.Buffers;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Many connections, what is left behind, and what a blocked handler holds up.</summary>
public class LoadScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    public static TheoryData<Transport> Engines => Transports.Engines;

    public static TheoryData<Transport> QuoitNormal => Transports.QuoitNormal;

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task Aborts_from_everywhere_in_the_middle_of_traffic_use_no_block_after_its_return(Transport transport)
    {
        // Aborts of both ends meet sends and receives that are under way; the poisoning pool finds what is used late.
        await using (var server = await TestServer.HttpAsync(transport, static application =>
        {
            application.MapGet("/abort/{size:int}", static async (int size, HttpContext context) =>
            {
                var writing = HttpScenarios.WriteBodyAsync(context.Response.Body, size);
                var aborting = Task.Run(context.Abort);
                try
                {
                    await writing;
                }
                catch (OperationCanceledException)
                {
                }
                await aborting;
            });
            application.MapPost("/echo", static context => context.Request.Body.CopyToAsync(context.Response.Body, context.RequestAborted));
        }))
        {
            await Parallel.ForEachAsync(Enumerable.Range(0, 300), new ParallelOptions { MaxDegreeOfParallelism = 16 }, async (number, _) =>
            {
                using var client = await Client.ConnectAsync(server.EndPoint);
                try
                {
                    if (number % 2 == 0)
                    {
                        await client.SendAsync($"GET /abort/{number * 997} HTTP/1.1\r\nHost: x\r\n\r\n");
                        await client.ReceiveToEndAsync();
                    }
                    else
                    {
                        await client.SendAsync("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
                        await client.SendAsync(new byte[20_000]);
                        await client.ReceiveAsync(100);
                        client.Reset();
                    }
                }
                catch (SocketException)
                {
                }
            });
            await LoopState.NothingLeftAsync(server.Loops!);
            await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_handler_that_blocks_holds_up_no_other_connection_of_its_turn(Transport transport)
    {
        if (transport.Inline)
        {
            return; // Where handlers run on the loop, this is what the option warns of.
        }
        using var released = new ManualResetEventSlim();
        var waiting = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(
            transport,
            application =>
            {
                application.MapGet("/wait", () =>
                {
                    waiting.TrySetResult();
                    return released.Wait(Wait.Limit) ? "waited" : "was left alone";
                });
                application.MapGet("/release", () =>
                {
                    released.Set();
                    return "released";
                });
            },
            options: options => options.Loops = 1);
        using var one = await Client.ConnectAsync(server.EndPoint);
        using var other = await Client.ConnectAsync(server.EndPoint);
        // Both are ready in one turn of the loop; whichever comes first, the one that waits must not hold up the other.
        await one.SendAsync("GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        await other.SendAsync("GET /release HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        Assert.Contains("released", await other.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        Assert.Contains("waited", await one.ReceiveTextToEndAsync(), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task A_loop_that_is_blocked_is_reported_with_the_count(Transport transport)
    {
        using var go = new ManualResetEventSlim();
        var kept = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        // No loop is kept for long by this clock until it is set: a busy machine may keep any.
        var (now, looks) = (0L, 0L);
        await using var server = await TestServer.HttpAsync(
            transport, static application => application.MapGet("/", static () => "at last"),
            options: options =>
            {
                options.Loops = 1;
                options.BlockedLoopLimit = TimeSpan.FromMilliseconds(50);
                options.Clock = () =>
                {
                    Interlocked.Increment(ref looks);
                    return Volatile.Read(ref now);
                };
            },
            services: static services => services.AddHealthChecks().AddQuoit());
        // As a handler does that blocks where the application runs on the loop.
        server.Loops!.Loops[0].Schedule(
            _ =>
            {
                kept.SetResult();
                Assert.True(go.Wait(Wait.Limit));
            },
            null);
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        await kept.Task.Soon();
        var checks = server.Services.GetRequiredService<HealthCheckService>();
        Volatile.Write(ref now, server.Loops!.Loops[0].BusySince + 49);
        Assert.Equal(HealthStatus.Healthy, (await checks.CheckHealthAsync()).Status);
        Volatile.Write(ref now, server.Loops!.Loops[0].BusySince + 50);
        await Wait.Until(() => server.Loops!.Blocked > 0, () => "nothing is reported");
        Assert.Equal(HealthStatus.Degraded, (await checks.CheckHealthAsync()).Status);
        // It is the same time, however often it is looked for.
        var before = Volatile.Read(ref looks);
        await Wait.Until(() => Volatile.Read(ref looks) > before + 2, () => "nobody looks");
        Volatile.Write(ref now, 0);
        go.Set();
        Assert.Contains("at last", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        Assert.Equal(HealthStatus.Healthy, (await checks.CheckHealthAsync()).Status);
        var line = Assert.Single(server.Log.Lines, line => line.Id.Name == "LoopBlocked");
        Assert.Contains("seen 1 time(s)", line.Text, StringComparison.Ordinal);
        Assert.Equal(1, server.Loops!.Blocked);
    }

    [Theory]
    [MemberData(nameof(QuoitNormal))]
    public async Task The_transport_allocates_nothing_a_request(Transport transport)
    {
        // The loop's own thread, whose every allocation is the transport's, but for the handler's where it runs inline.
        // A busy machine compiles late: a round in which something was allocated was part of warming up.
        const int Requests = 2_000, Rounds = 40;
        await using var server = await TestServer.RawAsync(
            transport,
            static async connection =>
            {
                var answer = new byte[100];
                while (true)
                {
                    var result = await connection.Transport.Input.ReadAsync();
                    connection.Transport.Input.AdvanceTo(result.Buffer.End);
                    if (result.IsCompleted)
                    {
                        return;
                    }
                    answer.CopyTo(connection.Transport.Output.GetSpan(answer.Length));
                    connection.Transport.Output.Advance(answer.Length);
                    await connection.Transport.Output.FlushAsync();
                }
            },
            options => options.Loops = 1);
        using var client = await Client.ConnectAsync(server.EndPoint);
        var request = new byte[100];
        void Exchange(int count)
        {
            for (var index = 0; index < count; index++)
            {
                client.Socket.Send(request);
                for (var left = 100; left > 0;)
                {
                    left -= client.Socket.Receive(request, 0, left, SocketFlags.None);
                }
            }
        }
        Exchange(500);
        var allocated = long.MaxValue;
        for (var round = 0; round < Rounds && allocated > 12 * Requests; round++)
        {
            var before = await AllocatedAsync(server.Loops!.Loops[0]);
            Exchange(Requests);
            allocated = await AllocatedAsync(server.Loops!.Loops[0]) - before;
        }
        // The smallest object has 24 bytes. What is less than one for each second request is no request's: asking, and
        // what the runtime does once.
        Assert.InRange(allocated, 0, 12 * Requests);
    }

    private static async Task<long> AllocatedAsync(Loop loop)
    {
        var answer = new TaskCompletionSource<long>(TaskCreationOptions.RunContinuationsAsynchronously);
        loop.Schedule(static state => ((TaskCompletionSource<long>)state!).SetResult(GC.GetAllocatedBytesForCurrentThread()), answer);
        return await answer.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Long_flushes_on_the_loop_end_before_they_return(Transport transport)
    {
        // Each is as long as the pipe's limit.
        const int Piece = 64 * 1024, Pieces = 3, Longer = 2 * 1024 * 1024;
        TestServer server = null!;
        var ended = new List<bool>();
        var onLoop = false;
        await using (server = await TestServer.RawAsync(
            transport with { Inline = true },
            async connection =>
            {
                var (input, output) = (connection.Transport.Input, connection.Transport.Output);
                while (true)
                {
                    var result = await input.ReadAsync();
                    input.AdvanceTo(result.Buffer.End);
                    if (result.IsCompleted)
                    {
                        return;
                    }
                    // It begins on a thread of the pool, and stays there while requests come before it waits for them.
                    Volatile.Write(ref onLoop, server.Loops!.Loops[0].OnThread);
                    if (!onLoop)
                    {
                        await output.WriteAsync(new byte[1]);
                        continue;
                    }
                    for (var index = 0; index < Pieces; index++)
                    {
                        var bytes = Pattern.Bytes(Piece, index * Piece);
                        var flushing = index % 2 == 0 ? output.WriteAsync(bytes) : WriteAndFlush(output, bytes);
                        ended.Add(flushing.IsCompleted);
                        await flushing;
                    }
                    // More pieces than one call sends: the rest follows it, once.
                    await output.WriteAsync(Pattern.Bytes(Longer, Pieces * Piece));
                    return;
                }
            },
            options => options.Loops = 1))
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            do
            {
                await client.SendAsync(new byte[1]);
                await client.ReceiveAsync(1);
            }
            while (!Volatile.Read(ref onLoop));
            var rest = await client.ReceiveToEndAsync();
            Assert.Equal((Pieces * Piece) + Longer - 1, rest.Length);
            Pattern.Check(rest, 1);
        }
        Assert.Equal([true, true, true], ended);
    }

    private static ValueTask<FlushResult> WriteAndFlush(PipeWriter writer, byte[] bytes)
    {
        writer.Write(bytes);
        return writer.FlushAsync();
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Small_answers_to_many_requests_leave_together(Transport transport)
    {
        await using var server = await TestServer.RawAsync(
            transport with { Inline = true },
            static async connection =>
            {
                while (true)
                {
                    var result = await connection.Transport.Input.ReadAsync();
                    var pieces = result.Buffer.Length / 10;
                    connection.Transport.Input.AdvanceTo(result.Buffer.End);
                    if (result.IsCompleted)
                    {
                        return;
                    }
                    for (var piece = 0; piece < pieces; piece++)
                    {
                        await connection.Transport.Output.WriteAsync("0123456789"u8.ToArray());
                    }
                }
            },
            options => options.Loops = 1);
        using var client = await Client.ConnectAsync(server.EndPoint);
        async Task<long> SendsAfterAsync(int size, long total)
        {
            await client.SendAsync(new byte[size]);
            await client.ReceiveAsync(size);
            await Wait.Until(() => LoopState.Read(server.Loops!, "received_bytes") == total, () => "not all was counted");
            return LoopState.Read(server.Loops!, "sends");
        }
        var first = await SendsAfterAsync(10, 10);
        await SendsAfterAsync(500, 510);
        // What is published may lack the send of the last turn: one more exchange, and its own.
        Assert.InRange(await SendsAfterAsync(10, 520) - first, 1, 3);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task More_connections_than_there_is_room_for_wait_their_turn(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(
            transport, static application => application.MapGet("/", static () => "hello"),
            options: options =>
            {
                options.Loops = 1;
                options.Connections = 4;
            });
        await Task.WhenAll(Enumerable.Range(0, 40).Select(async _ =>
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            Assert.Contains("hello", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        })).Soon();
    }
}
