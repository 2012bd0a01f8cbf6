using System.Net;
using System.Net.Http.Headers;
using System.Net.Security;
using System.Net.Sockets;
using System.Net.WebSockets;
using System.Security.Authentication;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using System.Text;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Https;
using Microsoft.AspNetCore.SignalR;
using Microsoft.Extensions.DependencyInjection;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What is layered on connections: TLS, HTTP/2, WebSockets, SignalR.</summary>
public sealed class ProtocolScenarios : IDisposable
{
    private readonly X509Certificate2 _certificate = CreateCertificate("localhost");

    public static TheoryData<Transport> All => Transports.All;

    public void Dispose() => _certificate.Dispose();

    internal static X509Certificate2 CreateCertificate(string name)
    {
        using var key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        var request = new CertificateRequest($"CN={name}", key, HashAlgorithmName.SHA256);
        using var certificate = request.CreateSelfSigned(DateTimeOffset.UtcNow.AddDays(-1), DateTimeOffset.UtcNow.AddDays(1));
        return X509CertificateLoader.LoadPkcs12(certificate.Export(X509ContentType.Pkcs12), null);
    }

    private Task<SslStream> AuthenticateAsync(Client client, SslApplicationProtocol protocol, X509Certificate2? own = null) =>
        AuthenticateAsync(client, _certificate, protocol, own);

    /// <summary>A stream of TLS to a server with that certificate.</summary>
    internal static async Task<SslStream> AuthenticateAsync(
        Client client, X509Certificate2 servers, SslApplicationProtocol? protocol = null, X509Certificate2? own = null)
    {
        var stream = new SslStream(new NetworkStream(client.Socket));
        await stream.AuthenticateAsClientAsync(
            new SslClientAuthenticationOptions
            {
                TargetHost = "localhost",
                ApplicationProtocols = [protocol ?? SslApplicationProtocol.Http11],
                ClientCertificates = own is null ? null : [own],
                RemoteCertificateValidationCallback = (_, certificate, _, _) => certificate!.GetCertHashString() == servers.GetCertHashString(),
            },
            Wait.Token);
        return stream;
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Tls_chooses_the_protocol_and_carries_bodies(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(
            transport, HttpScenarios.Map, listen => listen.UseHttps(_certificate));
        foreach (var protocol in new[] { SslApplicationProtocol.Http11, SslApplicationProtocol.Http2 })
        {
            using var client = await Client.ConnectAsync(server.EndPoint);
            await using var stream = await AuthenticateAsync(client, protocol);
            Assert.Equal(protocol, stream.NegotiatedApplicationProtocol);
        }
        using var handler = new SocketsHttpHandler();
        handler.SslOptions.RemoteCertificateValidationCallback = (_, certificate, _, _) => certificate!.GetCertHashString() == _certificate.GetCertHashString();
        using var http = new HttpClient(handler);
        foreach (var version in new[] { HttpVersion.Version11, HttpVersion.Version20 })
        {
            using var request = new HttpRequestMessage(HttpMethod.Post, $"https://127.0.0.1:{server.Port}/count")
            {
                Version = version,
                VersionPolicy = HttpVersionPolicy.RequestVersionExact,
                Content = new ByteArrayContent(Pattern.Bytes(500_000)),
            };
            using var answer = await http.SendAsync(request, Wait.Token);
            Assert.Equal("500000", await answer.Content.ReadAsStringAsync());
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Tls_with_a_clients_certificate(Transport transport)
    {
        using var own = CreateCertificate("client");
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/", static context => context.Response.WriteAsync(context.Connection.ClientCertificate?.Subject ?? "none")),
            listen => listen.UseHttps(_certificate, https =>
            {
                https.ClientCertificateMode = ClientCertificateMode.RequireCertificate;
                https.ClientCertificateValidation = static (certificate, _, _) => certificate.Subject == "CN=client";
            }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await using (var stream = await AuthenticateAsync(client, SslApplicationProtocol.Http11, own))
        {
            await stream.WriteAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"u8.ToArray());
            using var reader = new StreamReader(stream);
            Assert.Contains("CN=client", await reader.ReadToEndAsync().Soon(), StringComparison.Ordinal);
        }
        // Without one the handshake, or the first read behind it, fails.
        using var without = await Client.ConnectAsync(server.EndPoint);
        await Assert.ThrowsAnyAsync<Exception>(async () =>
        {
            await using var stream = await AuthenticateAsync(without, SslApplicationProtocol.Http11);
            await stream.WriteAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n"u8.ToArray());
            await stream.ReadExactlyAsync(new byte[1], Wait.Token);
        });
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_renegotiation_that_the_client_asks_for_is_refused(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map, listen => listen.UseHttps(_certificate));
        var to = server.EndPoint;
        await Task.Factory.StartNew(
            () =>
            {
                using var client = OpenSsl.Connect(to);
                client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                Assert.StartsWith("HTTP/1.1 200", client.ReceiveUntil("hello"), StringComparison.Ordinal);
                Assert.False(client.Renegotiate());
            },
            CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default).Soon();
        // The others of the server are as before.
        using var next = await Client.ConnectAsync(to);
        await using var stream = await AuthenticateAsync(next, SslApplicationProtocol.Http11);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_clients_certificate_that_the_application_asks_for_later(Transport transport)
    {
        // The server's own renegotiation, in TLS 1.2: the handshake goes on in the middle of the connection.
        using var own = CreateCertificate("client");
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/", static async context =>
            {
                Assert.Null(context.Connection.ClientCertificate);
                var certificate = await context.Connection.GetClientCertificateAsync();
                await context.Response.WriteAsync(certificate?.Subject ?? "none");
            }),
            listen => listen.UseHttps(_certificate, https =>
            {
                https.SslProtocols = SslProtocols.Tls12;
                https.ClientCertificateMode = ClientCertificateMode.DelayCertificate;
                https.AllowAnyClientCertificate();
            }));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await using var stream = await AuthenticateAsync(client, SslApplicationProtocol.Http11, own);
        await stream.WriteAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"u8.ToArray());
        using var reader = new StreamReader(stream);
        Assert.Contains("CN=client", await reader.ReadToEndAsync().Soon(), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Bytes_that_are_no_tls_end_the_connection(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map, listen => listen.UseHttps(_certificate));
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        try
        {
            await client.ReceiveToEndAsync();
        }
        catch (SocketException failure)
        {
            Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_hundred_streams_on_one_connection_of_http2(Transport transport)
    {
        const int Streams = 100;
        var arrived = 0;
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var connections = new System.Collections.Concurrent.ConcurrentDictionary<string, bool>();
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/{number:int}", async (int number, HttpContext context) =>
            {
                connections[context.Connection.Id] = true;
                if (Interlocked.Increment(ref arrived) == Streams)
                {
                    go.SetResult();
                }
                // All are open at the same time.
                await go.Task;
                await HttpScenarios.WriteBodyAsync(context.Response.Body, 20_000 + number);
            }),
            listen => listen.Protocols = HttpProtocols.Http2);
        using var client = new HttpClient
        {
            DefaultRequestVersion = HttpVersion.Version20,
            DefaultVersionPolicy = HttpVersionPolicy.RequestVersionExact,
        };
        await Task.WhenAll(Enumerable.Range(0, Streams).Select(async number =>
        {
            await using var body = await client.GetStreamAsync($"{server.Address}/{number}", Wait.Token);
            Assert.Equal(20_000 + number, await HttpScenarios.CheckBodyAsync(body));
        })).Soon();
        Assert.Single(connections);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Http2_both_ways_at_once_with_trailers(Transport transport)
    {
        // The shape of a bidirectional call of gRPC: each message is answered while the request goes on.
        await using var server = await TestServer.HttpAsync(
            transport,
            application => application.MapPost("/", static async context =>
            {
                await context.Response.Body.FlushAsync();
                var buffer = new byte[1000];
                int read;
                while ((read = await context.Request.Body.ReadAsync(buffer)) > 0)
                {
                    await context.Response.Body.WriteAsync(buffer.AsMemory(0, read));
                    await context.Response.Body.FlushAsync();
                }
                context.Response.AppendTrailer("grpc-status", "0");
            }),
            listen => listen.Protocols = HttpProtocols.Http2);
        using var client = new HttpClient();
        var content = new PipeContent();
        using var request = new HttpRequestMessage(HttpMethod.Post, server.Address)
        {
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            Content = content,
        };
        using var answer = await client.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, Wait.Token);
        var body = await answer.Content.ReadAsStreamAsync();
        var output = await content.Stream.Task.Soon();
        for (var round = 0; round < 50; round++)
        {
            await output.WriteAsync(Pattern.Bytes(100, round));
            await output.FlushAsync();
            var back = new byte[100];
            await body.ReadExactlyAsync(back, Wait.Token);
            Pattern.Check(back, round);
        }
        content.End.SetResult();
        Assert.Equal(0, await body.ReadAsync(new byte[1], Wait.Token));
        Assert.Equal("0", answer.TrailingHeaders.GetValues("grpc-status").Single());
    }

    private sealed class PipeContent : HttpContent
    {
        public TaskCompletionSource<Stream> Stream { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);

        public TaskCompletionSource End { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);

        protected override async Task SerializeToStreamAsync(Stream stream, TransportContext? context)
        {
            await stream.FlushAsync();
            Stream.SetResult(stream);
            await End.Task;
        }

        protected override bool TryComputeLength(out long length)
        {
            length = 0;
            return false;
        }
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_stream_of_http2_that_nobody_reads_holds_up_no_other(Transport transport)
    {
        const int Size = 2_000_000;
        var connections = new System.Collections.Concurrent.ConcurrentDictionary<string, bool>();
        var written = 0L;
        await using var server = await TestServer.HttpAsync(
            transport,
            application =>
            {
                application.Use((context, next) =>
                {
                    connections[context.Connection.Id] = true;
                    return next(context);
                });
                application.MapGet("/large", async context =>
                {
                    await HttpScenarios.WriteBodyAsync(context.Response.Body, Size);
                    Volatile.Write(ref written, Size);
                });
                application.MapGet("/small/{number:int}", static (int number) => $"<{number}>");
            },
            listen => listen.Protocols = HttpProtocols.Http2);
        // The window of a stream is far below its body and far below the connection's.
        using var handler = new SocketsHttpHandler { InitialHttp2StreamWindowSize = 65_535 };
        using var client = new HttpClient(handler)
        {
            DefaultRequestVersion = HttpVersion.Version20,
            DefaultVersionPolicy = HttpVersionPolicy.RequestVersionExact,
        };
        await using var large = await client.GetStreamAsync($"{server.Address}/large", Wait.Token);
        for (var number = 0; number < 50; number++)
        {
            Assert.Equal($"<{number}>", await client.GetStringAsync($"{server.Address}/small/{number}", Wait.Token));
        }
        Assert.Equal(0, Volatile.Read(ref written));
        Assert.Equal(Size, await HttpScenarios.CheckBodyAsync(large).Soon());
        Assert.Single(connections);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_server_that_stops_says_goaway_and_ends_the_connection(Transport transport)
    {
        const byte Settings = 4, GoAway = 7;
        var server = await TestServer.HttpAsync(transport, HttpScenarios.Map, listen => listen.Protocols = HttpProtocols.Http2);
        using var client = await Client.ConnectAsync(server.EndPoint);
        await client.SendAsync("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        await client.SendAsync(new byte[] { 0, 0, 0, Settings, 0, 0, 0, 0, 0 });
        async Task<byte> FrameAsync()
        {
            var head = await client.ReceiveAsync(9);
            await client.ReceiveAsync((head[0] << 16) | (head[1] << 8) | head[2]);
            return head[3];
        }
        Assert.Equal(Settings, await FrameAsync());
        var stopping = server.StopAsync();
        while (await FrameAsync() != GoAway)
        {
        }
        var rest = await client.ReceiveToEndAsync();
        // Another one of the same kind may follow: that no stream is left.
        Assert.True(rest.Length == 0 || rest[3] == GoAway, Convert.ToHexString(rest));
        await stopping.Soon();
        await server.DisposeAsync();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Http2_in_flight_ends_before_the_server_does(Transport transport)
    {
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var go = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var server = await TestServer.HttpAsync(
            transport,
            application => application.MapGet("/", async context =>
            {
                begun.TrySetResult();
                await go.Task;
                await context.Response.WriteAsync("to the end");
            }),
            listen => listen.Protocols = HttpProtocols.Http2);
        using var client = new HttpClient
        {
            DefaultRequestVersion = HttpVersion.Version20,
            DefaultVersionPolicy = HttpVersionPolicy.RequestVersionExact,
        };
        var answer = client.GetStringAsync(server.Address, Wait.Token);
        await begun.Task.Soon();
        var stopping = server.StopAsync();
        go.SetResult();
        Assert.Equal("to the end", await answer);
        await stopping.Soon();
        await server.DisposeAsync();
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task A_websocket_carries_messages_and_closes(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, application =>
        {
            application.UseWebSockets();
            application.MapGet("/", static async context =>
            {
                using var socket = await context.WebSockets.AcceptWebSocketAsync();
                var buffer = new byte[70_000];
                while (true)
                {
                    var message = await socket.ReceiveAsync(buffer.AsMemory(), context.RequestAborted);
                    if (message.MessageType == WebSocketMessageType.Close)
                    {
                        await socket.CloseAsync(WebSocketCloseStatus.NormalClosure, "bye", context.RequestAborted);
                        return;
                    }
                    await socket.SendAsync(buffer.AsMemory(0, message.Count), message.MessageType, message.EndOfMessage, context.RequestAborted);
                }
            });
        });
        using var client = new ClientWebSocket();
        await client.ConnectAsync(new Uri($"ws://127.0.0.1:{server.Port}/"), Wait.Token);
        foreach (var size in new[] { 1, 125, 126, 4096, 65_536 })
        {
            await client.SendAsync(Pattern.Bytes(size), WebSocketMessageType.Binary, true, Wait.Token);
            var back = new byte[size];
            for (var filled = 0; filled < size;)
            {
                filled += (await client.ReceiveAsync(back.AsMemory(filled), Wait.Token)).Count;
            }
            Pattern.Check(back, 0);
        }
        await client.CloseAsync(WebSocketCloseStatus.NormalClosure, "bye", Wait.Token);
        Assert.Equal("bye", client.CloseStatusDescription);
    }

    [Theory]
    [MemberData(nameof(All))]
    public async Task Signalr_reaches_all_clients(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(
            transport, application => application.MapHub<Chat>("/chat"), services: services => services.AddSignalR());
        using var one = await HubClient.ConnectAsync(server.Port, "/chat");
        using var other = await HubClient.ConnectAsync(server.Port, "/chat");
        await one.InvokeAsync("Say", "hello, all");
        Assert.Contains("hello, all", await one.ReceiveAsync("Heard"), StringComparison.Ordinal);
        Assert.Contains("hello, all", await other.ReceiveAsync("Heard"), StringComparison.Ordinal);
    }

    private sealed class Chat : Hub
    {
        public Task Say(string text) => Clients.All.SendAsync("Heard", text);
    }
}
