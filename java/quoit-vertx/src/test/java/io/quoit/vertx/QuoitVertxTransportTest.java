package io.quoit.vertx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.InternetProtocolFamily;
import io.quoit.netty.QuoitChannelOption;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.VertxBuilder;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.datagram.DatagramSocket;
import io.vertx.core.datagram.DatagramSocketOptions;
import io.vertx.core.dns.AddressResolverOptions;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServer;
import io.vertx.core.internal.VertxInternal;
import io.vertx.core.internal.net.NetSocketInternal;
import io.vertx.core.net.NetClient;
import io.vertx.core.net.NetClientOptions;
import io.vertx.core.net.NetServer;
import io.vertx.core.net.NetServerOptions;
import io.vertx.core.net.NetSocket;
import io.vertx.core.net.SocketAddress;
import io.vertx.core.spi.transport.Transport;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class QuoitVertxTransportTest {
    /**
     * For what is sure to happen. The first request of a fresh virtual machine loads most of Vert.x on its event loops: 8 s
     * of a processor that it has to itself only in part, and more on a busy machine.
     */
    private static final int PATIENCE_SECONDS = 120;

    private static <T> T await(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /**
     * Vert.x's HTTP server and client on this transport, over TCP and over a Unix socket. Bodies are asked for on the event
     * loop that hands out the response, by nesting: a chain that this thread goes on building may come after the bytes,
     * which are then gone.
     */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void httpServerAndClientRunOnTheTransport(QuoitEngine engine, @TempDir Path folder) throws Exception {
        Vertx vertx = Vertx.builder()
                .with(new VertxOptions().setEventLoopPoolSize(2))
                .withTransport(new QuoitVertxTransport(QuoitIoHandlerConfig.defaults().withEngine(engine)))
                .build();
        try {
            assertTrue(vertx.isNativeTransportEnabled());
            HttpServer tcp = vertx.createHttpServer().requestHandler(request -> request.body()
                    .onSuccess(body -> request.response().end(body)));
            await(tcp.listen(0, "127.0.0.1"));
            String path = folder.resolve("http").toString();
            HttpServer unix = vertx.createHttpServer().requestHandler(request -> request.response().end("unix"));
            await(unix.listen(SocketAddress.domainSocketAddress(path)));
            HttpClient client = vertx.createHttpClient();
            for (int size : new int[] {0, 1, 5_000, 1_000_000}) {
                Buffer body = Buffer.buffer("v".repeat(size));
                Buffer answer = await(client.request(HttpMethod.POST, tcp.actualPort(), "127.0.0.1", "/")
                        .compose(request -> request.send(body).compose(HttpClientResponse::body)));
                assertEquals(body, answer);
            }
            Buffer answer = await(client.request(new io.vertx.core.http.RequestOptions()
                            .setServer(SocketAddress.domainSocketAddress(path))
                            .setHost("localhost")
                            .setPort(80)
                            .setURI("/"))
                    .compose(request -> request.send().compose(HttpClientResponse::body)));
            assertEquals("unix", answer.toString());
            // Vert.x closes a client that nothing refers to any more.
            await(client.close());
        } finally {
            await(vertx.close());
        }
    }

    /**
     * Vert.x's own name resolver asks a server of names, which is a datagram socket of Vert.x's, and the client reaches
     * whom the name stands for.
     */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void namesAreResolvedByDatagrams(QuoitEngine engine) throws Exception {
        QuoitVertxTransport transport = new QuoitVertxTransport(QuoitIoHandlerConfig.defaults().withEngine(engine));
        Vertx names = Vertx.builder().withTransport(transport).build();
        try {
            DatagramSocket server = await(names.createDatagramSocket().listen(0, "127.0.0.1"));
            server.handler(query -> server.send(
                    answer(query.data()), query.sender().port(), query.sender().host()));
            AddressResolverOptions resolver = new AddressResolverOptions()
                    .addServer("127.0.0.1:" + server.localAddress().port())
                    .setMaxQueries(2);
            Vertx vertx = Vertx.builder()
                    .with(new VertxOptions().setAddressResolverOptions(resolver))
                    .withTransport(transport)
                    .build();
            try {
                HttpServer http = vertx.createHttpServer().requestHandler(request -> request.response().end("found"));
                await(http.listen(0, "127.0.0.1"));
                HttpClient client = vertx.createHttpClient();
                Buffer answer = await(client.request(HttpMethod.GET, http.actualPort(), "named.quoit.test", "/")
                        .compose(request -> request.send().compose(HttpClientResponse::body)));
                assertEquals("found", answer.toString());
                // Vert.x closes a client that nothing refers to any more.
                await(client.close());
            } finally {
                await(vertx.close());
            }
        } finally {
            await(names.close());
        }
    }

    /** The options that Vert.x leaves to its native transports: on such a one they must not do nothing. */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void optionsOfNativeTransportsReachTheSockets(QuoitEngine engine) throws Exception {
        QuoitVertxTransport transport = new QuoitVertxTransport(QuoitIoHandlerConfig.defaults().withEngine(engine));
        Vertx vertx = Vertx.builder().withTransport(transport).build();
        Vertx other = Vertx.builder().withTransport(transport).build();
        try {
            NetServerOptions options =
                    new NetServerOptions().setReusePort(true).setTcpCork(true).setTcpQuickAck(true).setTcpFastOpen(true);
            CompletableFuture<NetSocket> accepted = new CompletableFuture<>();
            NetServer first = await(vertx.createNetServer(options).connectHandler(accepted::complete).listen(0, "127.0.0.1"));
            NetClientOptions clientOptions = new NetClientOptions();
            clientOptions.setTcpUserTimeout(5_000).setTcpCork(true).setTcpQuickAck(true);
            NetClient client = vertx.createNetClient(clientOptions);
            ChannelConfig connected = config(await(client.connect(first.actualPort(), "127.0.0.1")));
            assertEquals(5_000, connected.getOption(QuoitChannelOption.TCP_USER_TIMEOUT));
            assertTrue(connected.getOption(QuoitChannelOption.TCP_CORK));
            ChannelConfig child = config(accepted.get(PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertTrue(child.getOption(QuoitChannelOption.TCP_CORK));
            // As its channel's parent was bound.
            ChannelConfig listening = channel(accepted.get()).parent().config();
            assertTrue(listening.getOption(QuoitChannelOption.SO_REUSEPORT));
            assertTrue(listening.getOption(ChannelOption.TCP_FASTOPEN) > 0);
            // Of another instance, as one of another process.
            await(other.createNetServer(options).connectHandler(socket -> {}).listen(first.actualPort(), "127.0.0.1"));

            DatagramSocketOptions shared = new DatagramSocketOptions().setReusePort(true);
            DatagramSocket datagrams = await(vertx.createDatagramSocket(shared).listen(0, "127.0.0.1"));
            await(other.createDatagramSocket(shared).listen(datagrams.localAddress().port(), "127.0.0.1"));
            await(client.close());
        } finally {
            await(vertx.close());
            await(other.close());
        }
    }

    /** Those of multicast, which Vert.x sets on NIO alone: there first, and the same on this transport. */
    @Test
    @SuppressWarnings("deprecation")
    void multicastGoesByTheInterfaceAndAsFarAsTheOptionsSay() throws Exception {
        String loopback =
                NetworkInterface.getByInetAddress(InetAddress.getLoopbackAddress()).getName();
        DatagramSocketOptions options =
                new DatagramSocketOptions().setMulticastNetworkInterface(loopback).setMulticastTimeToLive(7);
        for (String side : new String[] {"NIO", "URING", "EPOLL"}) {
            VertxBuilder builder = Vertx.builder();
            if (!side.equals("NIO")) {
                builder.withTransport(new QuoitVertxTransport(
                        QuoitIoHandlerConfig.defaults().withEngine(QuoitEngine.valueOf(side))));
            }
            Vertx vertx = builder.build();
            try {
                Transport transport = ((VertxInternal) vertx).transport();
                DatagramChannel channel = transport.datagramChannel(InternetProtocolFamily.IPv4);
                transport.configure(channel, options);
                assertEquals(7, channel.config().getTimeToLive(), side);
                assertEquals(loopback, channel.config().getNetworkInterface().getName(), side);
                channel.unsafe().closeForcibly();

                // The group is joined by the interface that is set, as the address tells of none, and found by it.
                CompletableFuture<String> received = new CompletableFuture<>();
                DatagramSocket member = await(vertx.createDatagramSocket(options).listen(0, "0.0.0.0"));
                member.handler(packet -> received.complete(packet.data().toString()));
                await(member.listenMulticastGroup("239.192.7.7"));
                DatagramSocket sender = vertx.createDatagramSocket(options);
                await(sender.send(side, member.localAddress().port(), "239.192.7.7"));
                assertEquals(side, received.get(PATIENCE_SECONDS, TimeUnit.SECONDS));
            } finally {
                await(vertx.close());
            }
        }
    }

    @Test
    void aMulticastInterfaceThatIsNotThereIsRefused() throws Exception {
        DatagramSocketOptions options = new DatagramSocketOptions().setMulticastNetworkInterface("nowhere0");
        for (boolean ours : new boolean[] {false, true}) {
            VertxBuilder builder = Vertx.builder();
            Vertx vertx = (ours ? builder.withTransport(new QuoitVertxTransport()) : builder).build();
            try {
                assertThrows(RuntimeException.class, () -> vertx.createDatagramSocket(options), "ours " + ours);
            } finally {
                await(vertx.close());
            }
        }
    }

    private static Channel channel(NetSocket socket) {
        return ((NetSocketInternal) socket).channelHandlerContext().channel();
    }

    private static ChannelConfig config(NetSocket socket) {
        return channel(socket).config();
    }

    /** The answer to a DNS query (RFC 1035): 127.0.0.1 to one for an address of IPv4, and nothing to others. */
    private static Buffer answer(Buffer query) {
        int end = 12;
        while (query.getByte(end) != 0) {
            end += 1 + query.getByte(end);
        }
        end += 5;
        boolean address = query.getShort(end - 4) == 1;
        Buffer answer = Buffer.buffer()
                .appendShort(query.getShort(0))
                .appendShort((short) 0x8180)
                .appendShort((short) 1)
                .appendShort((short) (address ? 1 : 0))
                .appendInt(0)
                .appendBuffer(query.slice(12, end));
        if (address) {
            answer.appendShort((short) 0xC00C).appendShort((short) 1).appendShort((short) 1);
            answer.appendInt(60).appendShort((short) 4).appendInt(0x7F000001);
        }
        return answer;
    }
}
