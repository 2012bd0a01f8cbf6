package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.socket.nio.NioDatagramChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapComboFactory;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapFactory;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.List;
import java.util.Locale;

/**
 * The transport as the build wants it tested: {@code quoit.test.engine} is {@code uring} or {@code epoll},
 * {@code quoit.test.limits} is {@code normal}, or {@code small} for a pool and marks that are always short and no copying
 * of what is sent. {@code quoit.test.stock}, {@code epoll} or {@code uring}, puts Netty's own transport in place of this one.
 */
final class UnderTest {
    static final QuoitEngine ENGINE =
            QuoitEngine.valueOf(System.getProperty("quoit.test.engine", "uring").toUpperCase(Locale.ROOT));
    static final boolean SMALL = System.getProperty("quoit.test.limits", "normal").equals("small");
    /** Netty's transport that is tested in place of this one; mostly null. */
    static final Stock STOCK = stock();

    private static final int THREADS = 4;

    static {
        // Netty's tests want an address that never answers, and keep what they find when they first look.
        System.setProperty("io.netty.testsuite.badHost", SilentListener.address().getHostString());
        System.setProperty("io.netty.testsuite.badPort", String.valueOf(SilentListener.address().getPort()));
    }

    static final EventLoopGroup GROUP = group(THREADS);
    private static final EventLoopGroup NIO = new MultiThreadIoEventLoopGroup(
            THREADS, new DefaultThreadFactory("test-nio", true), NioIoHandler.newFactory());

    private UnderTest() {}

    private static Stock stock() {
        String name = System.getProperty("quoit.test.stock");
        return name == null ? null : Stock.valueOf(name.toUpperCase(Locale.ROOT));
    }

    static IoHandlerFactory factory() {
        return STOCK != null ? STOCK.factory() : QuoitIoHandler.newFactory(config());
    }

    static Class<? extends ServerChannel> serverClass() {
        return STOCK != null ? STOCK.serverClass : QuoitServerSocketChannel.class;
    }

    static Channel stream() {
        return STOCK != null ? STOCK.stream() : new QuoitSocketChannel();
    }

    static QuoitIoHandlerConfig config() {
        QuoitIoHandlerConfig config = QuoitIoHandlerConfig.defaults().withEngine(ENGINE);
        if (!SMALL) {
            return config;
        }
        return config.withReceivePool(16, 1024)
                .withBufferRing(8)
                .withLeasesPerConnection(4)
                .withOutboundWaterMarks(1024, 4096)
                .withQueues(16, 64)
                .withCopyThreshold(0);
    }

    static EventLoopGroup group(int threads) {
        return new MultiThreadIoEventLoopGroup(
                threads, new DefaultThreadFactory("test-quoit", true), factory());
    }

    static ServerBootstrap server() {
        return new ServerBootstrap().group(GROUP).channel(serverClass());
    }

    static Bootstrap client() {
        return new Bootstrap().group(GROUP).channel(STOCK != null ? STOCK.streamClass : QuoitSocketChannel.class);
    }

    static List<BootstrapFactory<Bootstrap>> clients() {
        return List.of(UnderTest::client);
    }

    static List<BootstrapFactory<ServerBootstrap>> servers() {
        return List.of(UnderTest::server);
    }

    /** Both ends ours, and each with the other of NIO. */
    static List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> pairs() {
        return List.of(pair(true, true), pair(true, false), pair(false, true));
    }

    /** One of {@link #pairs}: an end that is not ours is one of NIO. */
    static BootstrapComboFactory<ServerBootstrap, Bootstrap> pair(boolean ourServer, boolean ourClient) {
        return new BootstrapComboFactory<>() {
            @Override
            public ServerBootstrap newServerInstance() {
                return ourServer ? server() : new ServerBootstrap().group(NIO).channel(NioServerSocketChannel.class);
            }

            @Override
            public Bootstrap newClientInstance() {
                return ourClient ? client() : new Bootstrap().group(NIO).channel(NioSocketChannel.class);
            }
        };
    }

    /** A datagram channel's bootstrap; null for the family that is the default. */
    static Bootstrap datagram(SocketProtocolFamily family) {
        if (STOCK != null) {
            return new Bootstrap().group(GROUP).channelFactory(() -> STOCK.datagram(family));
        }
        Bootstrap bootstrap = new Bootstrap().group(GROUP).channelFactory(() -> new QuoitDatagramChannel(family));
        return SMALL
                ? bootstrap.option(QuoitChannelOption.DATAGRAM_SLOTS, 2).option(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE, 2048)
                : bootstrap;
    }

    static List<BootstrapFactory<Bootstrap>> datagrams() {
        return List.of(() -> datagram(null));
    }

    /** Both ends ours, and each with the other of NIO. */
    static List<BootstrapComboFactory<Bootstrap, Bootstrap>> datagramPairs(SocketProtocolFamily family) {
        return List.of(
                datagramPair(family, true, true), datagramPair(family, true, false), datagramPair(family, false, true));
    }

    private static BootstrapComboFactory<Bootstrap, Bootstrap> datagramPair(
            SocketProtocolFamily family, boolean ourServer, boolean ourClient) {
        return new BootstrapComboFactory<>() {
            @Override
            public Bootstrap newServerInstance() {
                return ourServer ? datagram(family) : nio();
            }

            @Override
            public Bootstrap newClientInstance() {
                return ourClient ? datagram(family) : nio();
            }

            private Bootstrap nio() {
                return new Bootstrap().group(NIO).channelFactory(() -> new NioDatagramChannel(family));
            }
        };
    }
}
