using System.Collections.Concurrent;
using System.IO.Pipelines;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Middleware between the transport and HTTP, as that of TLS is.</summary>
public class MiddlewareScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    private sealed class OtherTransport(PipeReader input, PipeWriter output) : IDuplexPipe
    {
        public PipeReader Input => input;

        public PipeWriter Output => output;
    }

    /// <summary>Puts streams between the transport's pipes and what comes next, and takes them away again.</summary>
    private static void PassThrough(ListenOptions listen) => listen.Use(next => async connection =>
    {
        var original = connection.Transport;
        var input = PipeReader.Create(original.Input.AsStream());
        var output = PipeWriter.Create(original.Output.AsStream());
        connection.Transport = new OtherTransport(input, output);
        Assert.NotSame(original, connection.Features.Get<Microsoft.AspNetCore.Connections.Features.IConnectionTransportFeature>()!.Transport);
        try
        {
            await next(connection);
        }
        finally
        {
            await input.CompleteAsync();
            await output.CompleteAsync();
            connection.Transport = original;
        }
    });

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_transport_that_is_replaced_carries_bodies_and_is_closed(Transport transport)
    {
        const int Size = 400_000;
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map, PassThrough);
        using (var client = new HttpClient())
        {
            await using (var body = await client.GetStreamAsync($"{server.Address}/bytes/{Size}", Wait.Token))
            {
                Assert.Equal(Size, await HttpScenarios.CheckBodyAsync(body));
            }
            using var content = new ByteArrayContent(Pattern.Bytes(Size));
            using var counted = await client.PostAsync(new Uri($"{server.Address}/count"), content, Wait.Token);
            Assert.Equal($"{Size}", await counted.Content.ReadAsStringAsync());
        }
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_feature_that_is_set_hides_the_transports_own(Transport transport)
    {
        var seen = new TaskCompletionSource<(string? Id, bool Listed)>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, connection =>
        {
            connection.Features.Set<Microsoft.AspNetCore.Connections.Features.IConnectionIdFeature>(new OtherId { ConnectionId = "mine" });
            var listed = connection.Features.Count(
                feature => feature is { Key: var key, Value: OtherId } && key == typeof(Microsoft.AspNetCore.Connections.Features.IConnectionIdFeature));
            seen.SetResult((connection.Features.Get<Microsoft.AspNetCore.Connections.Features.IConnectionIdFeature>()?.ConnectionId, listed == 1));
            return Task.CompletedTask;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        Assert.Equal(("mine", true), await seen.Task.Soon());
    }

    private sealed class OtherId : Microsoft.AspNetCore.Connections.Features.IConnectionIdFeature
    {
        public string ConnectionId { get; set; } = "";
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Kestrels_own_logging_of_connections_shows_the_bytes(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map, static listen => listen.UseConnectionLogging("wire"));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        Assert.Contains("hello", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        var wire = server.Log.Lines.Where(line => line.Category == "wire" && line.Level == LogLevel.Debug).Select(line => line.Text).ToList();
        Assert.Contains(wire, text => text.StartsWith("ReadAsync", StringComparison.Ordinal));
        Assert.Contains(wire, text => text.StartsWith("WriteAsync", StringComparison.Ordinal));
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Middleware_that_throws_ends_its_connection_and_no_other(Transport transport)
    {
        var number = 0;
        await using var server = await TestServer.HttpAsync(
            transport, HttpScenarios.Map,
            listen => listen.Use(next => connection =>
                Interlocked.Increment(ref number) == 2 ? throw new InvalidOperationException("on purpose") : next(connection)));
        using var first = await Client.ConnectAsync(server.EndPoint);
        await first.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await first.ReceiveUntilAsync("hello");
        using (var second = await Client.ConnectAsync(server.EndPoint))
        {
            try
            {
                Assert.Empty(await second.ReceiveToEndAsync());
            }
            catch (SocketException failure)
            {
                Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
            }
        }
        await first.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await first.ReceiveUntilAsync("hello");
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_connection_that_is_disposed_with_another_transport_in_place_closes_its_own(Transport transport)
    {
        var other = new Pipe();
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            connection.Transport = new OtherTransport(other.Reader, other.Writer);
            await connection.DisposeAsync();
            await go.Task;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        Assert.Empty(await client.ReceiveToEndAsync());
        go.SetResult();
        // The one that was put in its place is its owner's to complete.
        await other.Writer.WriteAsync(new byte[] { 1 });
        Assert.Equal(1, (await other.Reader.ReadAsync(Wait.Token)).Buffer.Length);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task What_a_callback_leaves_in_its_context_meets_no_other(Transport transport)
    {
        var ambient = new AsyncLocal<string?>();
        var seen = new ConcurrentQueue<string?>();
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            var (input, output) = (connection.Transport.Input, connection.Transport.Output);
            for (var end = false; !end;)
            {
#pragma warning disable CA2012 // The awaiter is used once.
                var reading = input.ReadAsync().GetAwaiter();
#pragma warning restore CA2012
                var read = new TaskCompletionSource<ReadResult>(TaskCreationOptions.RunContinuationsAsynchronously);
                // Unlike an asynchronous method, it brings no context of its own.
                reading.UnsafeOnCompleted(() =>
                {
                    seen.Enqueue(ambient.Value);
                    ambient.Value = "left behind";
                    read.SetResult(reading.GetResult());
                });
                var result = await read.Task;
                end = result.IsCompleted;
                foreach (var segment in result.Buffer)
                {
                    await output.WriteAsync(segment);
                }
                input.AdvanceTo(result.Buffer.End);
            }
        });
        for (var round = 0; round < 5; round++)
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            for (var request = 0; request < 5; request++)
            {
                await client.SendAsync("hello");
                Assert.Equal("hello"u8.ToArray(), await client.ReceiveAsync(5));
            }
            client.EndSending();
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        Assert.True(seen.Count >= 25);
        Assert.All(seen, Assert.Null);
    }
}
