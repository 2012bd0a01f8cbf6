using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Limits of what is held of each direction, from one byte to none.</summary>
public class BufferScenarios
{
    private const int Size = 2_000_000;

    private static long?[] Limits => [1, 16 * 1024, 1024 * 1024, long.MaxValue, 0, null];

    public static TheoryData<Transport, long?> OfEachSize
    {
        get
        {
            var all = new TheoryData<Transport, long?>();
            foreach (var transport in Transports.Each.Where(transport => transport.IsQuoit && !transport.Tiny))
            {
                foreach (var limit in Limits)
                {
                    all.Add(transport, limit);
                }
            }
            return all;
        }
    }

    [Theory]
    [MemberData(nameof(OfEachSize))]
    public async Task Bodies_pass_whatever_the_limits(Transport transport, long? limit)
    {
        await using var server = await TestServer.RawAsync(
            transport,
            static connection => connection.Transport.Input.CopyToAsync(connection.Transport.Output),
            options =>
            {
                options.MaxReadBufferSize = limit;
                options.MaxWriteBufferSize = limit;
            });
        using var client = await Client.ConnectAsync(server.EndPoint);
        var sending = Task.Run(async () =>
        {
            await client.SendAsync(Pattern.Bytes(Size));
            client.EndSending();
        });
        var back = await client.ReceiveToEndAsync();
        await sending.Soon();
        Assert.Equal(Size, back.Length);
        Pattern.Check(back, 0);
    }

    [Theory]
    [MemberData(nameof(OfEachSize))]
    public async Task A_client_is_held_back_at_the_limit_and_only_then(Transport transport, long? limit)
    {
        // More than the kernel's buffers of both sides hold beside it.
        const int Much = 30_000_000;
        var unlimited = limit is null or 0 or long.MaxValue;
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(
            transport,
            async connection =>
            {
                await go.Task;
                await connection.Transport.Input.CopyToAsync(Stream.Null);
            },
            options => options.MaxReadBufferSize = limit);
        using var client = await Client.ConnectAsync(server.EndPoint);
        var sent = 0L;
        var sending = Task.Run(async () =>
        {
            var piece = new byte[100_000];
            while (Volatile.Read(ref sent) < Much)
            {
                await client.SendAsync(piece);
                Interlocked.Add(ref sent, piece.Length);
            }
            client.EndSending();
        });
        if (unlimited)
        {
            // Nobody reads: all of it is here nevertheless.
            await sending.Soon();
        }
        else
        {
            await Wait.Until(
                () => Volatile.Read(ref sent) >= Math.Min(limit!.Value, 1_000_000)
                    && server.Log.Lines.Any(static line => line.Id.Name == "ConnectionPaused"),
                () => $"it is not paused behind {Volatile.Read(ref sent)} bytes");
            // And it stays so: a machine that stalls only looks for a shorter time.
            await Wait.StandsStillAsync(() => Volatile.Read(ref sent));
            Assert.InRange(Volatile.Read(ref sent), 1, Much - 1);
        }
        go.SetResult();
        await sending.Soon();
        Assert.Empty(await client.ReceiveToEndAsync());
    }

    [Theory]
    [MemberData(nameof(OfEachSize))]
    public async Task A_writer_waits_at_the_limit_and_only_then(Transport transport, long? limit)
    {
        const int Much = 30_000_000;
        var unlimited = limit is null or 0 or long.MaxValue;
        var written = 0L;
        var all = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(
            transport,
            async connection =>
            {
                var piece = new byte[100_000];
                while (Volatile.Read(ref written) < Much && !(await connection.Transport.Output.WriteAsync(piece)).IsCompleted)
                {
                    Interlocked.Add(ref written, piece.Length);
                }
                all.SetResult();
            },
            options => options.MaxWriteBufferSize = limit);
        using var client = await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 8192);
        if (unlimited)
        {
            await all.Task.Soon();
            Assert.Equal(Much, Volatile.Read(ref written));
        }
        else
        {
            await Wait.StandsStillAsync(() => Volatile.Read(ref written));
            Assert.InRange(Volatile.Read(ref written), 1, Much - 1);
        }
        // What is left goes faster with a larger buffer.
        client.Socket.ReceiveBufferSize = 1 << 20;
        Assert.Equal(Much, (await client.ReceiveToEndAsync()).Length);
        await all.Task.Soon();
    }
}
