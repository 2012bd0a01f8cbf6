using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>HttpClient on Quoit's loops.</summary>
public class ClientScenarios
{
    public static TheoryData<Transport> Quoit => Transports.Quoit;

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task HttpClient_sends_and_receives_bodies(Transport transport)
    {
        var size = transport.Tiny ? 300_000 : 3_000_000;
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map);
        var factory = server.Services.GetRequiredService<IConnectionFactory>();
        Assert.IsType<QuoitTransportFactory>(factory);
        using (var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory)))
        {
            Assert.Equal("hello", await client.GetStringAsync($"http://localhost:{server.Port}/", Wait.Token));
            await Task.WhenAll(Enumerable.Range(0, 8).Select(async _ =>
            {
                await using var body = await client.GetStreamAsync($"{server.Address}/bytes/{size}", Wait.Token);
                Assert.Equal(size, await HttpScenarios.CheckBodyAsync(body));
                using var content = new ByteArrayContent(Pattern.Bytes(size));
                using var counted = await client.PostAsync(new Uri($"{server.Address}/count"), content, Wait.Token);
                Assert.Equal($"{size}", await counted.Content.ReadAsStringAsync());
            })).Soon();
        }
        await LoopState.NothingLeftAsync(server.Loops!);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task HttpClient_is_told_what_it_knows_from_sockets(Transport transport)
    {
        await using var factory = FactoryScenarios.Create(transport);
        using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory));
        var failure = await Assert.ThrowsAsync<HttpRequestException>(
            () => client.GetAsync(new Uri($"http://127.0.0.1:{BindScenarios.FreePort()}/"), Wait.Token));
        Assert.Equal(HttpRequestError.ConnectionError, failure.HttpRequestError);
        Assert.IsType<System.Net.Sockets.SocketException>(failure.InnerException);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_request_that_is_cancelled_gives_its_connection_up(Transport transport)
    {
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            begun.SetResult();
            await aborted.Task;
        }));
        await using var factory = FactoryScenarios.Create(transport);
        using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory));
        using var cancel = new CancellationTokenSource();
        var request = client.GetAsync(new Uri(server.Address), cancel.Token);
        await begun.Task.Soon();
        await cancel.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => request);
        await aborted.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_request_that_is_cancelled_while_its_server_reads_nothing_leaves_nothing(Transport transport)
    {
        using var deaf = ListensOnly();
        await using var factory = FactoryScenarios.Create(
            transport, configure: static options => options.DrainDeadline = TimeSpan.FromHours(1));
        using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory));
        using var cancel = new CancellationTokenSource();
        using var content = new ByteArrayContent(new byte[30_000_000]);
        var request = client.PostAsync(new Uri($"http://{deaf.LocalEndPoint}/"), content, cancel.Token);
        using var accepted = await deaf.AcceptAsync(Wait.Token);
        await Wait.StandsStillAsync(() => LoopState.Read(factory.Group!, "sent_bytes"));
        await cancel.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => request.Soon());
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_stream_that_is_disposed_waits_only_so_long_for_what_its_server_does_not_read(Transport transport)
    {
        using var deaf = ListensOnly();
        await using var factory = FactoryScenarios.Create(transport, configure: static options =>
        {
            options.DrainDeadline = TimeSpan.FromMilliseconds(50);
            options.MaxWriteBufferSize = null;
        });
        var stream = new ConnectionStream(await factory.ConnectAsync(deaf.LocalEndPoint!));
        using var accepted = await deaf.AcceptAsync(Wait.Token);
        await stream.WriteAsync(new byte[30_000_000], Wait.Token);
        await stream.DisposeAsync().AsTask().Soon();
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    /// <summary>A server that listens, and reads nothing.</summary>
    private static Socket ListensOnly()
    {
        var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        socket.Listen(1);
        return socket;
    }
}
