using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Kestrel's own limits, which end connections while the transport is at work on them.</summary>
public class LimitScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    private static Task<TestServer> StartAsync(Transport transport, Action<WebApplication> map, Action<KestrelServerLimits> limit) =>
        TestServer.StartAsync(
            transport,
            kestrel =>
            {
                limit(kestrel.Limits);
                kestrel.Listen(IPAddress.Loopback, 0);
            },
            map);

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_connection_past_the_limit_is_closed_and_one_that_ends_makes_room(Transport transport)
    {
        await using var server = await StartAsync(transport, HttpScenarios.Map, static limits => limits.MaxConcurrentConnections = 1);
        using (var first = await Client.ConnectAsync(server.EndPoint))
        {
            await first.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            await first.ReceiveUntilAsync("hello");
            using var second = await Client.ConnectAsync(server.EndPoint);
            Assert.Empty(await ReceiveAllAsync(second));
            // The first is as before.
            await first.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            await first.ReceiveUntilAsync("hello");
        }
        for (var answer = ""; answer.Length == 0;)
        {
            // The server may not know of the end yet.
            using var third = await Client.ConnectAsync(server.EndPoint);
            answer = await AnswerAsync(third);
        }
    }

    private static async Task<string> AnswerAsync(Client client)
    {
        try
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            return await client.ReceiveTextToEndAsync();
        }
        catch (SocketException)
        {
            return "";
        }
    }

    /// <summary>What comes until the peer's end, or its reset.</summary>
    private static async Task<byte[]> ReceiveAllAsync(Client client)
    {
        try
        {
            return await client.ReceiveToEndAsync();
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
            return [];
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Clients_that_send_or_read_too_slowly_are_let_go(Transport transport)
    {
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await StartAsync(
            transport,
            application =>
            {
                application.MapPost("/", static async context => await HttpScenarios.CheckBodyAsync(context.Request.Body));
                application.MapGet("/", async context =>
                {
                    using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
                    while (!aborted.Task.IsCompleted)
                    {
                        await context.Response.Body.WriteAsync(new byte[100_000]);
                    }
                });
            },
            static limits =>
            {
                // The shortest that Kestrel takes.
                limits.MinRequestBodyDataRate = new MinDataRate(1_000_000, TimeSpan.FromSeconds(1.1));
                limits.MinResponseDataRate = new MinDataRate(1_000_000, TimeSpan.FromSeconds(1.1));
            });
        using var writer = await Client.ConnectAsync(server.EndPoint);
        using var reader = await Client.ConnectAsync(server.EndPoint, static socket => socket.ReceiveBufferSize = 4096);
        await writer.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
        await reader.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        Assert.StartsWith("HTTP/1.1 408", await writer.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        // Its answer is more than pipes and sockets hold, and it takes none of it.
        await aborted.Task.Soon();
        await reader.ExpectResetAsync();
    }
}
