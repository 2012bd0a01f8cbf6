using System.Collections.Concurrent;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Core.Features;
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

    [Fact]
    public Task Clients_that_send_or_read_too_slowly_are_let_go() => Transports.AtOnceAsync(LetSlowClientsGoAsync);

    private static async Task LetSlowClientsGoAsync(Transport transport)
    {
        // In one test, so that their times run side by side.
        using var certificate = ProtocolScenarios.CreateCertificate("localhost");
        // Those whose answers nobody reads. Others may wait for a busy machine, and have no limit of that kind.
        var slow = new ConcurrentDictionary<string, bool>();
        static void TakeTime(HttpContext context) =>
            context.Features.GetRequiredFeature<IHttpMinResponseDataRateFeature>().MinDataRate = null;
        void Map(WebApplication application)
        {
            application.MapPost("/", static async context =>
            {
                TakeTime(context);
                await HttpScenarios.CheckBodyAsync(context.Request.Body);
            });
            application.MapPost("/echo", context =>
            {
                slow[context.Connection.Id] = true;
                // It is to be let go for what it does not read, however slowly a busy machine takes what it sends.
                context.Features.GetRequiredFeature<IHttpMinRequestBodyDataRateFeature>().MinDataRate = null;
                return context.Request.Body.CopyToAsync(context.Response.Body, context.RequestAborted);
            });
            application.MapGet("/", async context =>
            {
                slow[context.Connection.Id] = true;
                while (!context.RequestAborted.IsCancellationRequested)
                {
                    await context.Response.Body.WriteAsync(new byte[100_000]);
                }
            });
            application.MapGet("/short", static context =>
            {
                TakeTime(context);
                return context.Response.WriteAsync("hello");
            });
            application.MapGet("/last", context =>
            {
                slow[context.Connection.Id] = true;
                return context.Response.Body.WriteAsync(new byte[20_000_000]).AsTask();
            });
        }
        static void Limit(KestrelServerLimits limits)
        {
            // The shortest that Kestrel takes.
            limits.MinRequestBodyDataRate = new MinDataRate(1_000_000, TimeSpan.FromSeconds(1.1));
            limits.MinResponseDataRate = new MinDataRate(100_000_000, TimeSpan.FromSeconds(1.1));
        }
        await using var server = await StartAsync(transport, Map, Limit);
        await using var tls = await TestServer.StartAsync(
            transport,
            kestrel =>
            {
                Limit(kestrel.Limits);
                kestrel.Listen(IPAddress.Loopback, 0, listen => listen.UseHttps(certificate));
            },
            Map);
        Task<Client> ConnectAsync(TestServer to) => Client.ConnectAsync(to.EndPoint, static socket => socket.ReceiveBufferSize = 4096);
        using var writer = await ConnectAsync(server);
        await writer.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
        // All answers are more than pipes and sockets hold, and they take none of them.
        using var reader = await ConnectAsync(server);
        await reader.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        using var echo = await ConnectAsync(server);
        await echo.SendAsync("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
        var echoing = EndScenarios.SendUntilGoneAsync(echo);
        using var last = await ConnectAsync(server);
        await last.SendAsync("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        using var secret = await ConnectAsync(tls);
        var stream = await ProtocolScenarios.AuthenticateAsync(secret, certificate);
        await stream.WriteAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n"u8.ToArray(), Wait.Token);
        // Beside them another is answered, before and after.
        using var good = await ConnectAsync(server);
        async Task BeAnsweredAsync()
        {
            await good.SendAsync("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
            await good.ReceiveUntilAsync("hello");
        }
        await BeAnsweredAsync();
        Assert.StartsWith("HTTP/1.1 408", await writer.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        static int LetGo(TestServer server) => server.Log.Lines.Count(line => line.Id.Name == "ResponseMinimumDataRateNotSatisfied");
        await Wait.Until(
            () => LetGo(server) == 3 && LetGo(tls) == 1,
            () => $"{LetGo(server)} of 3 readers and {LetGo(tls)} of 1 by TLS were let go");
        Assert.All(
            server.Log.Lines.Concat(tls.Log.Lines).Where(static line => line.Id.Name == "ResponseMinimumDataRateNotSatisfied"),
            line => Assert.Contains(slow.Keys, id => line.Text.Contains($"\"{id}\"", StringComparison.Ordinal)));
        await echoing.Soon();
        await reader.ExpectResetAsync();
        await last.ExpectResetAsync();
        await secret.ExpectResetAsync();
        await BeAnsweredAsync();
        good.Dispose();
        await Wait.Until(
            () => server.Pools.Rented == 0 && tls.Pools.Rented == 0, () => $"{server.Pools.Rented} and {tls.Pools.Rented} blocks are left");
    }

    [Fact]
    public Task Clients_that_say_nothing_are_let_go_in_order() => Transports.AtOnceAsync(static transport => Task.WhenAll(
        LetSilentClientGoAsync(transport), LetIdleClientGoAsync(transport), LetHalfARequestGoAsync(transport)));

    // Each has a server of its own, on which only one of the limits is short: however late what a client sends comes, it is
    // that limit that ends it.
    private static readonly TimeSpan s_short = TimeSpan.FromSeconds(1);

    private static async Task LetSilentClientGoAsync(Transport transport)
    {
        await using var server = await StartAsync(transport, HttpScenarios.Map, static limits => limits.KeepAliveTimeout = s_short);
        using var silent = await Client.ConnectAsync(server.EndPoint);
        Assert.Empty(await silent.ReceiveToEndAsync());
    }

    private static async Task LetIdleClientGoAsync(Transport transport)
    {
        const string Request = "POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
        await using var server = await TestServer.StartAsync(
            transport,
            static kestrel =>
            {
                kestrel.Limits.KeepAliveTimeout = s_short;
                kestrel.Listen(IPAddress.Loopback, 0, static listen => listen.Use(static next => async connection =>
                {
                    // The time before the first request is limited as that behind it, and the request may come late.
                    var input = connection.Transport.Input;
                    var result = await input.ReadAtLeastAsync(Request.Length);
                    input.AdvanceTo(result.Buffer.Start);
                    await next(connection);
                }));
            },
            HttpScenarios.Map);
        using var idle = await Client.ConnectAsync(server.EndPoint);
        await idle.SendAsync(Request);
        // The answer is one piece of text, and the end of it.
        await idle.ReceiveUntilAsync("1\r\n0\r\n0\r\n\r\n");
        Assert.Empty(await idle.ReceiveToEndAsync());
    }

    private static async Task LetHalfARequestGoAsync(Transport transport)
    {
        await using var server = await StartAsync(transport, HttpScenarios.Map, static limits =>
        {
            limits.KeepAliveTimeout = Timeout.InfiniteTimeSpan;
            limits.RequestHeadersTimeout = s_short;
        });
        using var half = await Client.ConnectAsync(server.EndPoint);
        await half.SendAsync("GET / HTTP/1.1\r\nHo");
        Assert.StartsWith("HTTP/1.1 408", await half.ReceiveTextToEndAsync(), StringComparison.Ordinal);
    }
}
