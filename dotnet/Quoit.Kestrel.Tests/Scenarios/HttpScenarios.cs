using System.Net;
using System.Net.Sockets;
using System.Text;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>HTTP/1.1 by a real application.</summary>
public class HttpScenarios
{
    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Normal => Transports.Normal;

    /// <summary>Reads a body and checks it; returns how long it was.</summary>
    internal static async Task<long> CheckBodyAsync(Stream body)
    {
        var buffer = new byte[64 * 1024];
        var position = 0L;
        int read;
        while ((read = await body.ReadAsync(buffer)) > 0)
        {
            Pattern.Check(buffer.AsSpan(0, read), position);
            position += read;
        }
        return position;
    }

    internal static async Task WriteBodyAsync(Stream body, long size)
    {
        const int Piece = 64 * 1024;
        for (var position = 0L; position < size; position += Piece)
        {
            await body.WriteAsync(Pattern.Bytes((int)Math.Min(Piece, size - position), position));
        }
    }

    internal static void Map(WebApplication application)
    {
        application.MapGet("/", static () => "hello");
        application.MapGet("/bytes/{size:long}", static (long size, HttpContext context) => WriteBodyAsync(context.Response.Body, size));
        application.MapPost("/count", static async context =>
            await context.Response.WriteAsync($"{await CheckBodyAsync(context.Request.Body)}"));
        application.MapPost("/echo", static context => context.Request.Body.CopyToAsync(context.Response.Body));
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Bodies_both_ways(Transport transport)
    {
        var size = transport.Tiny ? 1_000_000 : 16_000_000;
        await using var server = await TestServer.HttpAsync(transport, Map);
        using var client = new HttpClient();
        Assert.Equal("hello", await client.GetStringAsync(server.Address, Wait.Token));
        await using (var body = await client.GetStreamAsync($"{server.Address}/bytes/{size}", Wait.Token))
        {
            Assert.Equal(size, await CheckBodyAsync(body).Soon());
        }
        using var content = new ByteArrayContent(Pattern.Bytes(size));
        using var counted = await client.PostAsync(new Uri($"{server.Address}/count"), content, Wait.Token);
        Assert.Equal($"{size}", await counted.Content.ReadAsStringAsync());
        // No more than pipes and sockets hold: this client reads no answer before it has sent its request.
        using var again = new ByteArrayContent(Pattern.Bytes(30_000));
        using var echoed = await client.PostAsync(new Uri($"{server.Address}/echo"), again, Wait.Token);
        Assert.Equal(30_000, await CheckBodyAsync(await echoed.Content.ReadAsStreamAsync()).Soon());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Pipelined_requests_are_answered_in_order(Transport transport)
    {
        const int Requests = 200;
        await using var server = await TestServer.HttpAsync(
            transport, application => application.MapGet("/{number:int}", static (int number) => $"<{number}>"));
        using var client = await Client.ConnectAsync(server.EndPoint);
        var all = new StringBuilder();
        for (var number = 0; number < Requests; number++)
        {
            var last = number == Requests - 1 ? "Connection: close\r\n" : "";
            all.Append($"GET /{number} HTTP/1.1\r\nHost: x\r\n{last}\r\n");
        }
        await client.SendAsync(all.ToString());
        var answers = await client.ReceiveTextToEndAsync();
        Assert.Equal(
            Enumerable.Range(0, Requests).Select(number => $"<{number}>"),
            System.Text.RegularExpressions.Regex.Matches(answers, "<[0-9]+>").Select(match => match.Value));
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_request_that_comes_byte_by_byte(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, Map);
        using var client = await Client.ConnectAsync(server.EndPoint);
        foreach (var character in "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        {
            await client.SendAsync(character.ToString());
        }
        Assert.Contains("hello", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_client_that_resets_in_the_middle_of_its_body(Transport transport)
    {
        var failure = new TaskCompletionSource<Exception>();
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapPost("/", async context =>
        {
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            try
            {
                await context.Request.Body.ReadExactlyAsync(new byte[10]);
                begun.SetResult();
                await CheckBodyAsync(context.Request.Body);
            }
            catch (Exception thrown)
            {
                failure.SetResult(thrown);
                await aborted.Task;
                throw;
            }
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n0123456789");
        await begun.Task.Soon();
        client.Reset();
        Assert.IsAssignableFrom<IOException>(await failure.Task.Soon());
        await aborted.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_client_that_goes_in_the_middle_of_the_answer(Transport transport)
    {
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            // Until it is told of, not until the token says so: that comes first, and the end of this handler takes the
            // registration back.
            while (!aborted.Task.IsCompleted)
            {
                await context.Response.Body.WriteAsync(new byte[10_000]);
            }
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await client.ReceiveAsync(100_000);
        client.Reset();
        await aborted.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_server_that_aborts_in_the_middle_of_the_answer(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            await context.Response.Body.WriteAsync(new byte[10_000]);
            await context.Response.Body.FlushAsync();
            context.Abort();
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await client.ExpectResetAsync();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_server_that_aborts_in_the_middle_of_the_body(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, application => application.MapPost("/", async context =>
        {
            await context.Request.Body.ReadExactlyAsync(new byte[1000]);
            context.Abort();
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n");
        await client.SendAsync(new byte[2000]);
        await client.ExpectResetAsync();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Requests_in_flight_end_before_the_server_does(Transport transport)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            begun.TrySetResult();
            await go.Task;
            await context.Response.WriteAsync("to the end");
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await begun.Task.Soon();
        var port = server.Port;
        var stopping = server.StopAsync();
        // Unbound: nobody new is accepted.
        await Wait.Until(
            () =>
            {
                using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
                try
                {
                    socket.Connect(IPAddress.Loopback, port);
                    return false;
                }
                catch (SocketException)
                {
                    return true;
                }
            },
            () => "the port is still bound");
        Assert.False(stopping.IsCompleted);
        go.SetResult();
        Assert.Contains("to the end", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
        await stopping.Soon();
        await server.DisposeAsync();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_server_that_is_dropped_with_a_request_in_flight(Transport transport)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            begun.TrySetResult();
            await Task.Delay(Timeout.Infinite, context.RequestAborted);
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        await begun.Task.Soon();
        var port = server.Port;
        await server.DropAsync().AsTask().Soon();
        try
        {
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
        }
        await using var next = await TestServer.HttpAsync(transport, Map, port: port);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task An_upgraded_connection_is_the_applications(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            await using var stream = await context.Features.GetRequiredFeature<IHttpUpgradeFeature>().UpgradeAsync();
            var buffer = new byte[100];
            int read;
            while ((read = await stream.ReadAsync(buffer)) > 0)
            {
                await stream.WriteAsync(buffer.AsMemory(0, read));
            }
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        Assert.StartsWith("HTTP/1.1 101", await client.ReceiveUntilAsync("\r\n\r\n"), StringComparison.Ordinal);
        await client.SendAsync("something else");
        Assert.Equal("something else", Encoding.ASCII.GetString(await client.ReceiveAsync(14)));
        client.EndSending();
        Assert.Empty(await client.ReceiveToEndAsync());
    }
}
