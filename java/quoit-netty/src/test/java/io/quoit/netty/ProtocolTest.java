package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.websocketx.BinaryWebSocketFrame;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketFrameAggregator;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolHandler;
import io.netty.handler.codec.http2.DefaultHttp2Connection;
import io.netty.handler.codec.http2.HttpToHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.InboundHttp2ToHttpAdapterBuilder;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.ApplicationProtocolNegotiationHandler;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.pkitesting.CertificateBuilder;
import io.netty.pkitesting.X509Bundle;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Netty's codecs over this transport, driven by the JDK's own clients. */
class ProtocolTest {
    private static final int MOST_BYTES = 8 << 20;

    private final EventLoopGroup group = UnderTest.group(2);

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    /** Answers a request with its body. */
    private static final class BodyEcho extends SimpleChannelInboundHandler<FullHttpRequest> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            ByteBuf body = request.content().retain();
            DefaultFullHttpResponse response =
                    new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK, body);
            response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, body.readableBytes());
            String stream = request.headers().get("x-http2-stream-id");
            if (stream != null) {
                response.headers().set("x-http2-stream-id", stream);
            }
            context.writeAndFlush(response);
        }
    }

    private int serve(java.util.function.Consumer<Channel> pipeline) throws Exception {
        Channel server = new ServerBootstrap()
                .group(group)
                .channel(QuoitServerSocketChannel.class)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        pipeline.accept(channel);
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        return ((InetSocketAddress) server.localAddress()).getPort();
    }

    private static void http1(Channel channel) {
        channel.pipeline().addLast(new HttpServerCodec(), new HttpObjectAggregator(MOST_BYTES), new BodyEcho());
    }

    private static void http2(Channel channel) {
        DefaultHttp2Connection connection = new DefaultHttp2Connection(true);
        channel.pipeline()
                .addLast(
                        new HttpToHttp2ConnectionHandlerBuilder()
                                .connection(connection)
                                .frameListener(new InboundHttp2ToHttpAdapterBuilder(connection)
                                        .maxContentLength(MOST_BYTES)
                                        .propagateSettings(false)
                                        .build())
                                .build(),
                        new BodyEcho());
    }

    /** Sends requests of many sizes, several at once, and compares what comes back. */
    private static void exchange(HttpClient client, URI to, HttpClient.Version version) throws Exception {
        List<CompletableFuture<Void>> answers = new ArrayList<>();
        for (int size : new int[] {0, 1, 100, 5_000, 100_000, 3_000_000, 17, 60_000}) {
            String body = "x".repeat(size / 2) + "y".repeat(size - size / 2);
            HttpRequest request =
                    HttpRequest.newBuilder(to).POST(HttpRequest.BodyPublishers.ofString(body)).build();
            answers.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString())
                    .thenAccept(response -> {
                        assertEquals(version, response.version());
                        assertEquals(body.length(), response.body().length());
                        assertEquals(body, response.body());
                    }));
        }
        CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new)).get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /** Java 17 has no call for it: there, a client ends when nobody refers to it. */
    private static void end(Object client) throws Exception {
        if (client instanceof AutoCloseable closeable) {
            closeable.close();
        }
    }

    @Test
    void http1WithTheJdksClient() throws Exception {
        int port = serve(ProtocolTest::http1);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        exchange(client, URI.create("http://127.0.0.1:" + port + "/"), HttpClient.Version.HTTP_1_1);
        end(client);
    }

    @Test
    void http2OverTlsOfTheJdkWithTheJdksClient() throws Exception {
        http2OverTls(SslProvider.JDK);
    }

    @Test
    void http2OverTlsOfOpenSslWithTheJdksClient() throws Exception {
        http2OverTls(SslProvider.OPENSSL);
    }

    private void http2OverTls(SslProvider provider) throws Exception {
        X509Bundle certificate = new CertificateBuilder()
                .subject("cn=localhost")
                .addSanDnsName("localhost")
                .setIsCertificateAuthority(true)
                .buildSelfSigned();
        SslContext tls = SslContextBuilder.forServer(certificate.getKeyPair().getPrivate(), certificate.getCertificatePath())
                .sslProvider(provider)
                .applicationProtocolConfig(new ApplicationProtocolConfig(
                        ApplicationProtocolConfig.Protocol.ALPN,
                        ApplicationProtocolConfig.SelectorFailureBehavior.NO_ADVERTISE,
                        ApplicationProtocolConfig.SelectedListenerFailureBehavior.ACCEPT,
                        ApplicationProtocolNames.HTTP_2,
                        ApplicationProtocolNames.HTTP_1_1))
                .build();
        int port = serve(channel -> channel.pipeline()
                .addLast(tls.newHandler(channel.alloc()), new ApplicationProtocolNegotiationHandler("http/1.1") {
                    @Override
                    protected void configurePipeline(ChannelHandlerContext context, String protocol) {
                        if (protocol.equals(ApplicationProtocolNames.HTTP_2)) {
                            http2(context.channel());
                        } else {
                            http1(context.channel());
                        }
                    }
                }));
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        store.setCertificateEntry("server", certificate.getCertificate());
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext trusting = SSLContext.getInstance("TLS");
        trusting.init(null, trust.getTrustManagers(), null);
        for (HttpClient.Version version : HttpClient.Version.values()) {
            if (version == HttpClient.Version.HTTP_1_1 || version == HttpClient.Version.HTTP_2) {
                HttpClient client = HttpClient.newBuilder().sslContext(trusting).version(version).build();
                exchange(client, URI.create("https://localhost:" + port + "/"), version);
                end(client);
            }
        }
    }

    @Test
    void webSocketsWithTheJdksClient() throws Exception {
        int port = serve(channel -> channel.pipeline()
                .addLast(
                        new HttpServerCodec(),
                        new HttpObjectAggregator(MOST_BYTES),
                        new WebSocketServerProtocolHandler("/", null, false, MOST_BYTES),
                        // The JDK's client sends long messages in several frames.
                        new WebSocketFrameAggregator(MOST_BYTES),
                        new SimpleChannelInboundHandler<WebSocketFrame>() {
                            @Override
                            protected void channelRead0(ChannelHandlerContext context, WebSocketFrame frame) {
                                ByteBuf content = frame.content().retain();
                                context.writeAndFlush(
                                        frame instanceof TextWebSocketFrame
                                                ? new TextWebSocketFrame(content)
                                                : new BinaryWebSocketFrame(content));
                            }
                        }));
        StringBuilder received = new StringBuilder();
        CompletableFuture<String> whole = new CompletableFuture<>();
        CompletableFuture<Integer> closed = new CompletableFuture<>();
        HttpClient client = HttpClient.newHttpClient();
        WebSocket socket = client.newWebSocketBuilder()
                .buildAsync(URI.create("ws://127.0.0.1:" + port + "/"), new WebSocket.Listener() {
                    @Override
                    public CompletionStage<?> onText(WebSocket from, CharSequence text, boolean last) {
                        received.append(text);
                        if (last) {
                            whole.complete(received.toString());
                        }
                        from.request(1);
                        return null;
                    }

                    @Override
                    public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
                        closed.complete(code);
                        return null;
                    }
                })
                .get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        String message = "a message in many slots ".repeat(10_000);
        socket.sendText(message, true).get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertEquals(message, whole.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        socket.sendClose(WebSocket.NORMAL_CLOSURE, "").get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertEquals(WebSocket.NORMAL_CLOSURE, closed.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        end(client);
    }
}
