using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Clients that have gone, seen by a server that goes on, and servers that go while clients wait.</summary>
public class GoneScenarios
{
    private const string Get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    public static TheoryData<Transport> All => Transports.All;

    public static TheoryData<Transport> Quoit => Transports.Quoit;

    [Theory]
    [MemberData(nameof(All))]
    public async Task Resets_by_clients_are_told_at_debug_level_and_each_connection_stops_once(Transport transport)
    {
        var begun = new SemaphoreSlim(0);
        var gone = new SemaphoreSlim(0);
        await using var server = await TestServer.HttpAsync(transport, application =>
        {
            application.MapGet("/", static () => "hello");
            application.MapGet("/wait", async context =>
            {
                begun.Release();
                await gone.WaitAsync(Wait.Token);
            });
        });
        var started = server.Log.Lines.Count();
        using (var before = await Client.ConnectAsync(server.EndPoint))
        {
            before.Reset();
        }
        using (var inHead = await Client.ConnectAsync(server.EndPoint))
        {
            await inHead.SendAsync("GET / HT");
            inHead.Reset();
        }
        using (var between = await Client.ConnectAsync(server.EndPoint))
        {
            await between.SendAsync(Get);
            await between.ReceiveUntilAsync("hello");
            between.Reset();
        }
        using (var during = await Client.ConnectAsync(server.EndPoint))
        {
            await during.SendAsync("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
            await begun.WaitAsync(Wait.Token);
            during.Reset();
        }
        // A reset that is seen before the server knows of the connection may leave no trace; the last two always do.
        int Count(string name) => server.Log.Lines.Count(line => line.Id.Name == name);
        await Wait.Until(() => Count("ConnectionReset") + Count("ConnectionFailed") >= 2, () => "no reset was told of");
        gone.Release();
        await Wait.Until(
            () => Count("ConnectionStop") >= 2 && Count("ConnectionStop") == Count("ConnectionStart"),
            () => $"{Count("ConnectionStart")} connections have started, {Count("ConnectionStop")} have stopped");
        var loud = server.Log.Lines.Skip(started).Where(line =>
            line.Level > LogLevel.Information
            || (line.Level > LogLevel.Debug && line.Category is "Quoit.Kestrel" or "Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets"));
        Assert.Empty(loud);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Writing_to_a_client_that_has_gone_is_no_error_but_by_the_tokens_that_say_so(Transport transport)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var outcome = new TaskCompletionSource<(bool Plain, bool Cancelled)>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            begun.SetResult();
            await aborted.Task;
            try
            {
                await context.Response.Body.WriteAsync(new byte[100_000]);
                var cancelled = false;
                try
                {
                    await context.Response.Body.WriteAsync(new byte[100_000], context.RequestAborted);
                }
                catch (OperationCanceledException)
                {
                    cancelled = true;
                }
                outcome.SetResult((true, cancelled));
            }
            catch (Exception failure)
            {
                outcome.SetException(failure);
            }
        }));
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            await client.SendAsync(Get);
            await begun.Task.Soon();
        }
        Assert.Equal((true, true), await outcome.Task.Soon());
    }

    /// <summary>Lets a handler run whose client was held back and has gone, which nobody hears of who does not receive, until
    /// it says that it was told.</summary>
    private static async Task ServeHeldBackAsync(Transport transport, Func<HttpContext, TaskCompletionSource, Task> handler)
    {
        var gone = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var told = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapPost("/", async context =>
            {
                await gone.Task;
                await handler(context, told);
            }),
            // So long may the reader take, who does not come, for what io_uring has received past the pause.
            options: options => options.DrainDeadline = TimeSpan.FromMilliseconds(100));
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            var sending = await EndScenarios.HoldBackAsync(client);
            client.Dispose();
            await sending.Soon();
        }
        gone.SetResult();
        await told.Task.Soon();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
    }

    [Theory]
    [MemberData(nameof(All))]
    public Task A_server_that_only_writes_learns_that_its_client_has_gone(Transport transport) =>
        ServeHeldBackAsync(transport, async (context, told) =>
        {
            try
            {
                while (true)
                {
                    await context.Response.Body.WriteAsync(new byte[30_000], context.RequestAborted);
                    await Task.Yield();
                }
            }
            catch (OperationCanceledException)
            {
                told.SetResult();
            }
        });

    [Theory]
    [MemberData(nameof(All))]
    public Task A_server_can_abort_a_connection_whose_client_went_unnoticed(Transport transport) =>
        ServeHeldBackAsync(transport, async (context, told) =>
        {
            using var registration = context.RequestAborted.Register(() => told.TrySetResult());
            context.Abort();
            await told.Task;
        });

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_read_that_waits_ends_when_the_application_aborts(Transport transport)
    {
        var failure = new TaskCompletionSource<Exception?>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapPost("/", async context =>
        {
            var reading = context.Request.Body.CopyToAsync(Stream.Null);
            context.Abort();
            failure.SetResult(await Record.ExceptionAsync(() => reading));
        }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
        await client.ExpectResetAsync();
        Assert.IsAssignableFrom<OperationCanceledException>(await failure.Task.Soon());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task What_is_written_after_an_abort_is_dropped(Transport transport)
    {
        var failure = new TaskCompletionSource<Exception?>(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            // The client has connected for certain.
            connection.Transport.Input.AdvanceTo((await connection.Transport.Input.ReadAsync()).Buffer.End);
            connection.Abort(new ConnectionAbortedException("on purpose"));
            failure.SetResult(await Record.ExceptionAsync(async () =>
            {
                while (!(await connection.Transport.Output.WriteAsync(new byte[100_000])).IsCompleted)
                {
                }
            }));
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("x");
        await client.ExpectResetAsync();
        // As with sockets: the end of what can be written, not a failure of who writes.
        Assert.Null(await failure.Task.Soon());
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task An_abort_without_a_reason_is_no_reset(Transport transport)
    {
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.RawAsync(transport, async connection =>
        {
            // Nothing is left to be read, for which the kernel itself would reset the connection.
            connection.Transport.Input.AdvanceTo((await connection.Transport.Input.ReadAsync()).Buffer.End);
            connection.Abort(null!);
            await go.Task;
        });
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("x");
        try
        {
            // A reset would be an exception here.
            Assert.Empty(await client.ReceiveToEndAsync());
        }
        finally
        {
            go.SetResult();
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task An_answer_survives_what_its_client_still_sends(Transport transport)
    {
        // Here a connection of sockets is reset, and what of the answer is on its way with it: see docs/kestrel.md.
        const int Size = 300_000;
        await using var server = await TestServer.RawAsync(
            transport, static async connection => await connection.Transport.Output.WriteAsync(Pattern.Bytes(Size)));
        using var client = await Client.ConnectAsync(server.EndPoint);
        for (var piece = 0; piece < 100; piece++)
        {
            await client.SendAsync(new byte[100_000]);
        }
        client.EndSending();
        var answer = await client.ReceiveToEndAsync();
        Assert.Equal(Size, answer.Length);
        Pattern.Check(answer, 0);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task ConnectionClosed_has_been_told_when_a_connection_is_disposed(Transport transport)
    {
        await using var factory = FactoryScenarios.Create(transport);
        await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
        for (var round = 0; round < 2; round++)
        {
            var accepting = listener.AcceptAsync(Wait.Token);
            using var client = await Client.ConnectAsync(listener.EndPoint);
            var connection = (await accepting)!;
            var closed = connection.ConnectionClosed;
            Assert.False(closed.IsCancellationRequested);
            await connection.DisposeAsync().AsTask().Soon();
            Assert.True(closed.IsCancellationRequested);
        }
    }

    public static TheoryData<Transport, HttpProtocols> Stops
    {
        get
        {
            var all = new TheoryData<Transport, HttpProtocols>();
            foreach (var transport in Transports.Each)
            {
                all.Add(transport, HttpProtocols.Http1);
                all.Add(transport, HttpProtocols.Http2);
            }
            return all;
        }
    }

    [Theory]
    [MemberData(nameof(Stops))]
    public async Task A_stop_that_is_cancelled_aborts_what_is_in_flight_over_tls(Transport transport, HttpProtocols protocol)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        using var certificate = ProtocolScenarios.CreateCertificate("localhost");
        var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/", async context =>
            {
                begun.TrySetResult();
                await Task.Delay(Timeout.Infinite, context.RequestAborted);
            }),
            listen =>
            {
                listen.Protocols = protocol;
                listen.UseHttps(certificate);
            });
        using var handler = new SocketsHttpHandler
        {
            SslOptions = new SslClientAuthenticationOptions
            {
                RemoteCertificateValidationCallback = (_, shown, _, _) => shown!.GetCertHashString() == certificate.GetCertHashString(),
            },
        };
        using var client = new HttpClient(handler)
        {
            DefaultRequestVersion = protocol == HttpProtocols.Http2 ? HttpVersion.Version20 : HttpVersion.Version11,
            DefaultVersionPolicy = HttpVersionPolicy.RequestVersionExact,
        };
        var answer = client.GetStringAsync($"https://127.0.0.1:{server.Port}/", Wait.Token);
        await begun.Task.Soon();
        using var patience = new CancellationTokenSource();
        var stopping = server.StopAsync(patience.Token);
        Assert.False(stopping.IsCompleted);
        await patience.CancelAsync();
        await stopping.Soon();
        await Assert.ThrowsAsync<HttpRequestException>(() => answer);
        await server.DisposeAsync().AsTask().Soon();
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
    }
}
