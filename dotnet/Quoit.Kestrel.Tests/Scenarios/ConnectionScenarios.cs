using System.Buffers;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Bytes, ends and features of bare connections.</summary>
public class ConnectionScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    private static async Task EchoAsync(ConnectionContext connection)
    {
        while (true)
        {
            var result = await connection.Transport.Input.ReadAsync();
            foreach (var segment in result.Buffer)
            {
                await connection.Transport.Output.WriteAsync(segment);
            }
            connection.Transport.Input.AdvanceTo(result.Buffer.End);
            if (result.IsCompleted)
            {
                return;
            }
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Small_and_large_pieces_come_back_in_order(Transport transport)
    {
        await using var server = await TestServer.RawAsync(transport, EchoAsync);
        using var client = await Client.ConnectAsync(server.EndPoint);
        long position = 0;
        foreach (var size in new[] { 1, 100, 4096, 5000, 65_536, 300_000 })
        {
            var sending = client.SendAsync(Pattern.Bytes(size, position));
            Pattern.Check(await client.ReceiveAsync(size), position);
            await sending;
            position += size;
        }
        client.EndSending();
        Assert.Empty(await client.ReceiveToEndAsync());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Many_connections_at_once_keep_their_bytes_apart(Transport transport)
    {
        await using var server = await TestServer.RawAsync(transport, EchoAsync);
        await Task.WhenAll(Enumerable.Range(0, 50).Select(async number =>
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            for (var round = 0; round < 20; round++)
            {
                var from = (number * 1_000L) + round;
                await client.SendAsync(Pattern.Bytes(200, from));
                Pattern.Check(await client.ReceiveAsync(200), from);
            }
        })).Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_client_that_ends_its_direction_still_gets_everything(Transport transport)
    {
        await using var server = await TestServer.RawAsync(transport, static async connection =>
        {
            var received = 0L;
            while (true)
            {
                var result = await connection.Transport.Input.ReadAsync();
                received += result.Buffer.Length;
                connection.Transport.Input.AdvanceTo(result.Buffer.End);
                if (result.IsCompleted)
                {
                    break;
                }
            }
            Assert.Equal(100_000, received);
            await connection.Transport.Output.WriteAsync(Pattern.Bytes(500_000));
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync(Pattern.Bytes(100_000));
        client.EndSending();
        var answer = await client.ReceiveToEndAsync();
        Assert.Equal(500_000, answer.Length);
        Pattern.Check(answer, 0);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task ConnectionClosed_is_told_of_a_fin_off_the_loop(Transport transport)
    {
        var told = new TaskCompletionSource<string?>();
        var finish = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            using var registration = connection.ConnectionClosed.Register(() => told.TrySetResult(Thread.CurrentThread.Name));
            await finish.Task;
        });
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            client.EndSending();
            var thread = await told.Task.Soon();
            Assert.DoesNotContain("quoit loop", thread ?? "", StringComparison.Ordinal);
        }
        finish.SetResult();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_reset_by_the_client_fails_the_read_and_is_told(Transport transport)
    {
        var failure = new TaskCompletionSource<Exception>();
        var closed = new TaskCompletionSource<string?>(TaskCreationOptions.RunContinuationsAsynchronously);
        var started = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            using var registration = connection.ConnectionClosed.Register(() => closed.TrySetResult(Thread.CurrentThread.Name));
            try
            {
                var result = await connection.Transport.Input.ReadAsync();
                connection.Transport.Input.AdvanceTo(result.Buffer.End);
                started.SetResult();
                await connection.Transport.Input.ReadAsync();
                failure.SetException(new InvalidOperationException("the read ended in order"));
            }
            catch (Exception thrown)
            {
                failure.TrySetResult(thrown);
            }
            await closed.Task;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("x");
        await started.Task.Soon();
        client.Reset();
        Assert.IsType<ConnectionResetException>(await failure.Task.Soon());
        Assert.DoesNotContain("quoit loop", await closed.Task.Soon() ?? "", StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task An_abort_by_the_server_is_a_reset_to_the_client(Transport transport)
    {
        var failure = new TaskCompletionSource<Exception>();
        var closed = new TaskCompletionSource<string?>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            using var registration = connection.ConnectionClosed.Register(() => closed.TrySetResult(Thread.CurrentThread.Name));
            await connection.Transport.Input.ReadAsync();
            connection.Transport.Input.AdvanceTo(default(ReadOnlySequence<byte>).Start);
            connection.Abort(new ConnectionAbortedException("on purpose"));
            try
            {
                while (true)
                {
                    var result = await connection.Transport.Input.ReadAsync();
                    connection.Transport.Input.AdvanceTo(result.Buffer.End);
                }
            }
            catch (Exception thrown)
            {
                failure.TrySetResult(thrown);
            }
            await closed.Task;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("x");
        await client.ExpectResetAsync();
        Assert.Equal("on purpose", Assert.IsType<ConnectionAbortedException>(await failure.Task.Soon()).Message);
        Assert.DoesNotContain("quoit loop", await closed.Task.Soon() ?? "", StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task An_abort_while_much_is_being_sent_ends_the_flush(Transport transport)
    {
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            var writing = Task.Run(async () =>
            {
                try
                {
                    while (!(await connection.Transport.Output.WriteAsync(Pattern.Bytes(100_000))).IsCompleted)
                    {
                    }
                }
                catch (Exception failure) when (failure is ConnectionAbortedException or InvalidOperationException)
                {
                }
                ended.SetResult();
            });
            await connection.Transport.Input.ReadAsync();
            connection.Abort(new ConnectionAbortedException("on purpose"));
            await writing;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.ReceiveAsync(10);
        await client.SendAsync("x");
        await client.ExpectResetAsync();
        await ended.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_server_that_ends_after_a_large_answer_loses_nothing_to_a_slow_reader(Transport transport)
    {
        const int Size = 3_000_000;
        await using var server = await TestServer.RawAsync(
            transport, static async connection => await connection.Transport.Output.WriteAsync(Pattern.Bytes(Size)));
        using var client = await Client.ConnectAsync(server.EndPoint, socket => socket.ReceiveBufferSize = 4096);
        var received = 0;
        while (received < Size)
        {
            var bytes = await client.ReceiveAsync(Math.Min(10_000, Size - received));
            Pattern.Check(bytes, received);
            received += bytes.Length;
        }
        Assert.Empty(await client.ReceiveToEndAsync());
    }

    public static TheoryData<Transport> QuoitNormal => Transports.QuoitNormal;

    [Theory]
    [MemberData(nameof(QuoitNormal))]
    public async Task What_is_lent_leaves_together_and_piece_by_piece_where_the_list_has_no_room(Transport transport)
    {
        const int Size = 300_000;
        foreach (var hasRoom in new[] { true, false })
        {
            await using var server = await TestServer.RawAsync(
                transport,
                static async connection => await connection.Transport.Output.WriteAsync(Pattern.Bytes(Size)),
                options => options.CopyRoom = hasRoom ? options.CopyRoom : 1024);
            using var client = await Client.ConnectAsync(server.EndPoint);
            var answer = await client.ReceiveToEndAsync();
            Assert.Equal(Size, answer.Length);
            Pattern.Check(answer, 0);
            var loops = server.Loops!;
            await Wait.Until(
                () => LoopState.Read(loops, "sent_bytes") >= Size, () => $"it counts {LoopState.Read(loops, "sent_bytes")} bytes");
            var (sends, pieces) = (LoopState.Read(loops, "sends"), LoopState.Read(loops, "send_pieces"));
            Assert.True(hasRoom ? pieces > 4 * sends : pieces == sends, $"{sends} sends had {pieces} pieces");
        }
    }

    public static TheoryData<Transport> QuoitInline => Transports.QuoitInline;

    [Theory]
    [MemberData(nameof(QuoitInline))]
    public async Task What_a_flush_on_the_loop_leaves_to_the_turn_is_not_overwritten_by_another_connection(Transport transport)
    {
        // More than a flush sends by itself, and more bytes behind it than the list of its pieces is long.
        const int Size = 4_000_000;
        const int Other = 8000;
        await using var factory = FactoryScenarios.Create(transport, configure: static options =>
        {
            options.Loops = 1;
            options.MaxWriteBufferSize = null;
        });
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        using var client = await Client.ConnectAsync(listener.EndPoint);
        await using var first = (await listener.AcceptAsync(Wait.Token))!;
        using var otherClient = await Client.ConnectAsync(listener.EndPoint);
        await using var second = (await listener.AcceptAsync(Wait.Token))!;
        var answer = Pattern.Bytes(Size);
        var answering = AnswerAsync();
        await client.SendAsync("go");

        Assert.Equal(Enumerable.Repeat((byte)'x', Other), await otherClient.ReceiveAsync(Other));
        Pattern.Check(await client.ReceiveAsync(Size), 0);
        await answering.Soon();

        async Task AnswerAsync()
        {
            // It goes on inside of the loop's turn, as whatever reads does here.
            await first.Transport.Input.ReadAsync(Wait.Token);
            first.Transport.Output.Write(answer);
            var flushing = first.Transport.Output.FlushAsync();
            var other = second.Transport.Output.WriteAsync(Enumerable.Repeat((byte)'x', Other).ToArray());
            await flushing;
            await other;
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_writer_waits_for_a_reader_that_does_not_read(Transport transport)
    {
        long written = 0;
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            while (!connection.ConnectionClosed.IsCancellationRequested)
            {
                await connection.Transport.Output.WriteAsync(Pattern.Bytes(10_000, written));
                Interlocked.Add(ref written, 10_000);
                if (Volatile.Read(ref written) >= 40_000_000)
                {
                    return;
                }
            }
        });
        using var client = await Client.ConnectAsync(server.EndPoint, socket => socket.ReceiveBufferSize = 8192);
        await client.ReceiveAsync(1);
        await Wait.StandsStillAsync(() => Volatile.Read(ref written));
        // What the kernel's buffers of both sides hold, and the pipe's and the library's limits.
        Assert.InRange(Volatile.Read(ref written), 1, 16_000_000);
        var before = Volatile.Read(ref written);
        await client.ReceiveAsync((int)before);
        await Wait.Until(() => Volatile.Read(ref written) > before, () => "the writer did not go on");
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_client_waits_for_a_server_that_does_not_read(Transport transport)
    {
        const int Size = 40_000_000;
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var received = new TaskCompletionSource<long>();
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            await go.Task;
            var position = 0L;
            while (true)
            {
                var result = await connection.Transport.Input.ReadAsync();
                foreach (var segment in result.Buffer)
                {
                    Pattern.Check(segment.Span, position);
                    position += segment.Length;
                }
                connection.Transport.Input.AdvanceTo(result.Buffer.End);
                if (result.IsCompleted)
                {
                    break;
                }
            }
            received.SetResult(position);
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        long sent = 0;
        var sending = Task.Run(async () =>
        {
            while (sent < Size)
            {
                await client.SendAsync(Pattern.Bytes(50_000, sent));
                Interlocked.Add(ref sent, 50_000);
            }
            client.EndSending();
        });
        await Wait.StandsStillAsync(() => Volatile.Read(ref sent));
        Assert.InRange(Volatile.Read(ref sent), 1, Size - 1);
        go.SetResult();
        await sending.Soon();
        Assert.Equal(Size, await received.Task.Soon());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Bytes_examined_and_not_consumed_come_again_with_more(Transport transport)
    {
        var done = new TaskCompletionSource<long>();
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            // A message much larger than the pools: nothing may be kept back until it is there as a whole.
            while (true)
            {
                var result = await connection.Transport.Input.ReadAsync();
                if (result.Buffer.Length >= 700_000)
                {
                    Pattern.Check(result.Buffer.ToArray(), 0);
                    done.SetResult(result.Buffer.Length);
                    return;
                }
                connection.Transport.Input.AdvanceTo(result.Buffer.Start, result.Buffer.End);
            }
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync(Pattern.Bytes(700_000));
        Assert.Equal(700_000, await done.Task.Soon());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Features_name_the_connection(Transport transport)
    {
        var seen = new TaskCompletionSource<(EndPoint?, EndPoint?, string, bool, bool)>();
        await using var server = await TestServer.RawAsync(transport, connection =>
        {
            var original = connection.Transport;
            connection.Transport = original;
            connection.Items["key"] = "value";
            var socket = connection.Features.Get<IConnectionSocketFeature>()?.Socket;
            seen.SetResult((
                connection.LocalEndPoint, connection.RemoteEndPoint, connection.ConnectionId,
                socket is { NoDelay: true } && Equals(socket.RemoteEndPoint, connection.RemoteEndPoint),
                connection.Features.Get<IConnectionIdFeature>()!.ConnectionId == connection.ConnectionId
                    && connection.Features.Get<IConnectionTransportFeature>()!.Transport == original
                    && connection.Features.Get<IConnectionItemsFeature>()!.Items["key"] is "value"
                    && connection.Features.Get<IConnectionEndPointFeature>() is var points
                    && (points is null || points.LocalEndPoint == connection.LocalEndPoint)
                    && connection.Features.Get<IConnectionLifetimeFeature>()!.ConnectionClosed == connection.ConnectionClosed
                    && connection.Features.Get<IMemoryPoolFeature>() is not null));
            return Task.CompletedTask;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        var (local, remote, id, isSocket, same) = await seen.Task.Soon();
        Assert.Equal(server.EndPoint, local);
        Assert.Equal(client.Socket.LocalEndPoint, remote);
        Assert.NotEmpty(id);
        Assert.True(isSocket);
        Assert.True(same);
    }
}
