using System.Buffers;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using System.Text;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>HttpClient on Quoit's loops.</summary>
public class ClientScenarios
{
    public static TheoryData<Transport> Quoit => Transports.Quoit;

    public static TheoryData<Transport> Normal => Transports.Normal;

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task HttpClient_sends_and_receives_bodies(Transport transport)
    {
        var size = transport.Tiny ? 300_000 : 3_000_000;
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map);
        var factory = server.Services.GetRequiredService<IConnectionFactory>();
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
        // By the loops, whatever the services' factory is.
        Assert.NotEqual(0, LoopState.Read(server.Loops!, "connected"));
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

    /// <summary>Gives every connection the same end.</summary>
    private sealed class FailingConnections(Exception failure) : IConnectionFactory
    {
        public ValueTask<ConnectionContext> ConnectAsync(EndPoint endpoint, CancellationToken cancellationToken = default)
        {
            var (input, output) = (new Pipe(), new Pipe());
            input.Writer.Complete(failure);
            return new(new DefaultConnectionContext("failing") { Transport = new Duplex(input.Reader, output.Writer) });
        }

        private sealed class Duplex(PipeReader input, PipeWriter output) : IDuplexPipe
        {
            public PipeReader Input => input;

            public PipeWriter Output => output;
        }
    }

    /// <summary>As over sockets: NetworkStream has all of it inside an IOException, which HttpClient knows what to do with.</summary>
    [Fact]
    public async Task A_connection_that_fails_fails_its_request_as_over_sockets()
    {
        foreach (var failure in new Exception[]
        {
            new SocketException((int)SocketError.TimedOut),
            new ConnectionResetException("on purpose"),
            new ConnectionAbortedException("on purpose"),
            new OperationCanceledException("on purpose"),
        })
        {
            using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(new FailingConnections(failure)));
            using var content = new ByteArrayContent([1, 2, 3]);
            var told = await Assert.ThrowsAsync<HttpRequestException>(() => client.PostAsync(new Uri("http://127.0.0.1/"), content, Wait.Token));
            Assert.IsType<IOException>(told.InnerException is HttpIOException ? told.InnerException.InnerException : told.InnerException, exactMatch: false);
            Assert.Contains(failure.Message, told.ToString(), StringComparison.Ordinal);
        }
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_request_whose_factory_is_disposed_fails_and_is_not_cancelled(Transport transport)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using var server = await TestServer.HttpAsync(transport, application => application.MapGet("/", async context =>
        {
            using var registration = context.RequestAborted.Register(() => aborted.TrySetResult());
            begun.SetResult();
            await aborted.Task;
        }));
        var factory = FactoryScenarios.Create(transport);
        using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory));
        var request = client.GetAsync(new Uri(server.Address), Wait.Token);
        await begun.Task.Soon();
        await factory.DisposeAsync().AsTask().Soon();
        await Assert.ThrowsAsync<HttpRequestException>(() => request.Soon());
        await aborted.Task.Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task More_attempts_than_a_turn_has_room_for_wait_for_the_next(Transport transport)
    {
        const int Attempts = 60;
        using var listening = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listening.Listen(Attempts);
        await using var factory = FactoryScenarios.Create(transport, configure: static options =>
        {
            options.Loops = 1;
            // What sends take of it at the same time leaves no more.
            options.CopyRoom = 1024;
        });
        Assert.True(factory.CanBind(listening.LocalEndPoint!));
        using var held = new ManualResetEventSlim();
        factory.Group!.Loops[0].TryPost(_ => held.Wait(Wait.Limit), null);
        var attempts = Enumerable.Range(0, Attempts).Select(_ => factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token).AsTask()).ToArray();
        held.Set();
        foreach (var connection in await Task.WhenAll(attempts).Soon())
        {
            (await listening.AcceptAsync(Wait.Token)).Dispose();
            await connection.DisposeAsync();
        }
        await LoopState.NothingLeftAsync(factory.Group!);
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task An_attempt_that_comes_behind_the_stop_of_its_loop_is_refused_at_once(Transport transport)
    {
        // It would be queued for ever: the loop would wait for it as long as it waits for anything.
        using var full = ListensOnly();
        full.Listen(0);
        using var filler = await Client.ConnectAsync(full.LocalEndPoint!);
        var factory = FactoryScenarios.Create(transport, configure: static options => options.Loops = 1);
        Assert.True(factory.CanBind(full.LocalEndPoint!));
        var loop = factory.Group!.Loops[0];
        using var held = new ManualResetEventSlim();
        loop.TryPost(_ => held.Wait(Wait.Limit), null);
        var ending = factory.DisposeAsync().AsTask();
        // As where a name is resolved meanwhile.
        var attempt = PendingConnect.StartAsync(loop, full.LocalEndPoint!, Kernel.AddressText(full.LocalEndPoint!), -1, Wait.Token).AsTask();
        held.Set();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => attempt.Soon());
        await ending.Soon();
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task An_error_of_an_attempt_is_the_one_that_a_socket_has(Transport transport)
    {
        using var folder = new Folder();
        await using var factory = FactoryScenarios.Create(transport);
        var datagrams = new UnixDomainSocketEndPoint(Path.Combine(folder.Path, "datagrams"));
        using var bound = new Socket(AddressFamily.Unix, SocketType.Dgram, ProtocolType.Unspecified);
        bound.Bind(datagrams);
        var file = Path.Combine(folder.Path, "file");
        await File.WriteAllTextAsync(file, "");
        EndPoint[] wrong =
        [
            datagrams, new UnixDomainSocketEndPoint(file), new UnixDomainSocketEndPoint(Path.Combine(file, "below")),
            new IPEndPoint(IPAddress.Broadcast, 9), new IPEndPoint(IPAddress.Any, 0), new IPEndPoint(IPAddress.Parse("fe80::1"), 9),
        ];
        foreach (var to in wrong)
        {
            using var socket = to is UnixDomainSocketEndPoint
                ? new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified)
                : new Socket(to.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
            var wanted = await Assert.ThrowsAnyAsync<SocketException>(() => socket.ConnectAsync(to, Wait.Token).AsTask());
            var failure = await Assert.ThrowsAnyAsync<SocketException>(() => factory.ConnectAsync(to, Wait.Token).AsTask());
            Assert.True(wanted.SocketErrorCode == failure.SocketErrorCode, $"{to}: {failure.SocketErrorCode} ({failure.Message}), not {wanted.SocketErrorCode}");
        }
    }

    /// <summary>Makes connections, and tells of the last.</summary>
    private sealed class Watched(IConnectionFactory inner) : IConnectionFactory
    {
        public ConnectionContext? Last { get; private set; }

        public async ValueTask<ConnectionContext> ConnectAsync(EndPoint endpoint, CancellationToken cancellationToken = default) =>
            Last = await inner.ConnectAsync(endpoint, cancellationToken);
    }

    /// <summary>The kernel keeps what a reset comes behind, and a socket reads that first.</summary>
    [Theory]
    [MemberData(nameof(Normal))]
    public async Task A_response_that_came_before_a_reset_is_read(Transport transport)
    {
        const int Size = 20_000;
        using var server = ListensOnly();
        await using var factory = transport.IsQuoit ? FactoryScenarios.Create(transport) : null;
        var watched = factory is null ? null : new Watched(factory);
        Socket? plain = null;
        using var handler = new SocketsHttpHandler
        {
            ConnectCallback = watched is not null
                ? QuoitHttpExtensions.CreateConnectCallback(watched)
                : async (context, cancellation) =>
                {
                    plain = new Socket(SocketType.Stream, ProtocolType.Tcp);
                    await plain.ConnectAsync(context.DnsEndPoint, cancellation);
                    return new NetworkStream(plain, ownsSocket: true);
                },
        };
        using var client = new HttpClient(handler);
        var responding = client.GetAsync(new Uri($"http://{server.LocalEndPoint}/"), HttpCompletionOption.ResponseHeadersRead, Wait.Token);
        using var accepted = await server.AcceptAsync(Wait.Token);
        await accepted.ReceiveAsync(new byte[4096], Wait.Token);
        await accepted.SendAsync(Encoding.ASCII.GetBytes($"HTTP/1.1 200 OK\r\nContent-Length: {Size}\r\n\r\n"), Wait.Token);
        using var response = await responding.Soon();
        await using var body = await response.Content.ReadAsStreamAsync();
        Assert.Equal(Size, await accepted.SendAsync(Pattern.Bytes(Size), Wait.Token));
        accepted.LingerState = new LingerOption(true, 0);
        accepted.Dispose();
        // Until this end knows of the reset.
        await Wait.Until(
            () => watched?.Last!.ConnectionClosed.IsCancellationRequested ?? IsReset(plain!), () => "the reset did not come");
        var read = new byte[Size];
        await body.ReadExactlyAsync(read, Wait.Token);
        Pattern.Check(read, 0);
    }

    /// <summary>By the state in TCP_INFO, which is TCP_CLOSE: to ask for the error would take it.</summary>
    private static bool IsReset(Socket socket)
    {
        const int Tcp = 6, Info = 11, Closed = 7;
        var info = new byte[8];
        socket.GetRawSocketOption(Tcp, Info, info);
        return info[0] == Closed;
    }

    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_loop_that_is_full_leaves_a_connection_to_one_that_is_not(Transport transport)
    {
        using var listening = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listening.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listening.Listen();
        await using var factory = FactoryScenarios.Create(transport, configure: static options =>
        {
            options.Loops = 2;
            options.Connections = 1;
        });
        await using var first = await factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token);
        await using (await factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token))
        {
            var failure = await Assert.ThrowsAsync<SocketException>(() => factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token).AsTask());
            Assert.Equal(SocketError.NoBufferSpaceAvailable, failure.SocketErrorCode);
            Assert.Contains("Kestrel:Quoit:Connections", failure.Message, StringComparison.Ordinal);
            (await listening.AcceptAsync(Wait.Token)).Dispose();
            (await listening.AcceptAsync(Wait.Token)).Dispose();
        }
        // Whichever loop's turn it is.
        for (var round = 0; round < 3; round++)
        {
            await Wait.Until(() => LoopState.Read(factory.Group!, "connections") <= 1, () => "the other one did not end");
            await using var another = await factory.ConnectAsync(listening.LocalEndPoint!, Wait.Token);
            (await listening.AcceptAsync(Wait.Token)).Dispose();
        }
    }

    [Fact]
    public void An_attempt_ends_when_its_caller_or_the_kernel_gives_it_up()
    {
        QuoitLibrary.Load();
        Assert.Equal(TimeSpan.FromDays(1).TotalNanoseconds, LoopGroup.CreateConfig(new QuoitTransportOptions()).ConnectTimeoutNs);
    }

    /// <summary>Where a read puts its bytes; says when it is about to.</summary>
    private sealed class Destination(int size, Action reached) : MemoryManager<byte>
    {
        public byte[] Bytes { get; } = new byte[size];

        /// <summary>All of it. <see cref="MemoryManager{T}.Memory"/> would ask for the span, which is what the read does last.</summary>
        public override Memory<byte> Memory => CreateMemory(size);

        public override Span<byte> GetSpan()
        {
            reached();
            return Bytes;
        }

        public override MemoryHandle Pin(int elementIndex = 0) => throw new NotSupportedException();

        public override void Unpin()
        {
        }

        protected override void Dispose(bool disposing)
        {
        }
    }

    /// <summary>As HttpClient disposes it to cancel a request whose response is being read.</summary>
    [Theory]
    [MemberData(nameof(Quoit))]
    public async Task A_stream_that_is_disposed_in_the_midst_of_a_read_gives_no_bytes_of_others(Transport transport)
    {
        const int Size = 1000;
        using var server = ListensOnly();
        var pools = new PoisonPoolFactory();
        await using var factory = FactoryScenarios.Create(transport, pools);
        var connection = await factory.ConnectAsync(server.LocalEndPoint!);
        var stream = ConnectionStream.Over(connection);
        using (var accepted = await server.AcceptAsync(Wait.Token))
        {
            await accepted.SendAsync(Pattern.Bytes(Size), Wait.Token);
        }
        // Nothing but the reader holds its blocks then.
        await Wait.Until(() => connection.ConnectionClosed.IsCancellationRequested, () => "the end did not come");
        var disposing = new Thread(stream.Dispose);
        using var destination = new Destination(Size, () =>
        {
            if (disposing.ThreadState.HasFlag(ThreadState.Unstarted))
            {
                disposing.Start();
                SpinWait.SpinUntil(() => !disposing.IsAlive || disposing.ThreadState.HasFlag(ThreadState.WaitSleepJoin), Wait.Limit);
            }
        });
        var read = await stream.ReadAsync(destination.Memory, Wait.Token);
        Pattern.Check(destination.Bytes.AsSpan(0, read), 0);
        disposing.Join();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => stream.ReadAsync(new byte[1], Wait.Token).AsTask());
        await Assert.ThrowsAsync<ObjectDisposedException>(() => stream.WriteAsync(new byte[1], Wait.Token).AsTask());
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
