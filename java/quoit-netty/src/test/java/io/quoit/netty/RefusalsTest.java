package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoEventLoop;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandle;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ConnectionPendingException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.UnsupportedAddressTypeException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.LoggerFactory;

/** Channels and threads that do not fit: each refusal says once what to do. */
class RefusalsTest {
    private final List<String> logged = new CopyOnWriteArrayList<>();
    private final Logger root = (Logger) LoggerFactory.getLogger(org.slf4j.Logger.ROOT_LOGGER_NAME);

    private final AppenderBase<ILoggingEvent> log = new AppenderBase<>() {
        @Override
        protected void append(ILoggingEvent event) {
            String thrown = event.getThrowableProxy() == null ? "" : event.getThrowableProxy().getMessage();
            logged.add(event.getFormattedMessage() + " " + thrown);
        }
    };

    @BeforeEach
    void listen() {
        log.start();
        root.addAppender(log);
    }

    @AfterEach
    void end() {
        root.detachAppender(log);
    }

    private void assertLoggedOnce(String words) {
        assertEquals(1, logged.stream().filter(line -> line.contains(words)).count(), words + " in " + logged);
    }

    /** As Reactor Netty asks before each file that it sends: no channel is offered, so there is nothing to warn of. */
    @Test
    void whoAsksWhatALoopIsIsNotWarned() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            IoEventLoop loop = (IoEventLoop) group.next();
            assertFalse(loop.isCompatible(NioIoHandle.class));
            assertTrue(loop.isCompatible(QuoitIoHandle.class));
            assertEquals(List.of(), logged.stream().filter(line -> line.contains("was offered")).toList());
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aLoopSaysOnceWhichChannelsItServes() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            for (int time = 0; time < 2; time++) {
                ChannelFuture foreign = new Bootstrap()
                        .group(group)
                        .channel(NioSocketChannel.class)
                        .handler(new ChannelInboundHandlerAdapter())
                        .register()
                        .await();
                assertInstanceOf(IllegalStateException.class, foreign.cause());
            }
            assertLoggedOnce("give the bootstrap a channel class of io.quoit.netty");
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aChannelOnAnotherTransportsLoopSaysWhatItNeeds() throws Exception {
        EventLoopGroup nio = new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
        try {
            QuoitSocketChannel channel = new QuoitSocketChannel();
            Throwable cause = nio.register(channel).await().cause();
            assertInstanceOf(IllegalStateException.class, cause);
            assertTrue(cause.getMessage().contains("QuoitIoHandler.newFactory()"), cause.getMessage());
            assertFalse(channel.isOpen());
        } finally {
            nio.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** As NIO does; Netty's epoll transport leaves it to the kernel. */
    @Test
    void addressesOfOtherSocketsAreRefused(@TempDir Path folder) throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        ChannelHandler nothing = Peers.each(ChannelInboundHandlerAdapter::new);
        try (ServerSocketChannel unix = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
                ServerSocketChannel tcp = ServerSocketChannel.open()) {
            Path path = folder.resolve("socket");
            unix.bind(UnixDomainSocketAddress.of(path));
            tcp.bind(new InetSocketAddress("127.0.0.1", 0));
            SocketAddress unixAddress = new DomainSocketAddress(path.toString());
            SocketAddress tcpAddress = tcp.getLocalAddress();
            Bootstrap tcpClient = new Bootstrap().group(group).channel(QuoitSocketChannel.class).handler(nothing);
            Bootstrap unixClient = new Bootstrap().group(group).channel(QuoitDomainSocketChannel.class).handler(nothing);
            SocketAddress anyPort = new InetSocketAddress("127.0.0.1", 0);
            SocketAddress free = new DomainSocketAddress(folder.resolve("free").toString());
            for (ChannelFuture refused : List.of(
                    tcpClient.connect(unixAddress),
                    tcpClient.connect(tcpAddress, free),
                    tcpClient.bind(free),
                    new ServerBootstrap().group(group).channel(QuoitServerSocketChannel.class).childHandler(nothing).bind(free),
                    unixClient.connect(tcpAddress),
                    unixClient.connect(unixAddress, anyPort),
                    unixClient.bind(anyPort),
                    new ServerBootstrap()
                            .group(group)
                            .channel(QuoitServerDomainSocketChannel.class)
                            .childHandler(nothing)
                            .bind(anyPort))) {
                assertInstanceOf(UnsupportedAddressTypeException.class, refused.await().cause());
            }
            assertFalse(Files.exists(folder.resolve("free")));
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** As by NIO; with Netty's epoll transport the kernel refuses it. */
    @Test
    void aChannelThatConnectsIsNotBoundBesides() throws Exception {
        for (Stock stock : new Stock[] {Stock.NIO, null}) {
            EventLoopGroup group = Scene.group(stock);
            try {
                Channel channel = new Bootstrap()
                        .group(group)
                        .channel(stock == null ? QuoitSocketChannel.class : stock.streamClass)
                        .handler(new ChannelInboundHandlerAdapter())
                        .register()
                        .sync()
                        .channel();
                ChannelFuture connecting = channel.connect(SilentListener.address());
                Throwable cause = channel.bind(new InetSocketAddress("127.0.0.1", 0)).await().cause();
                assertInstanceOf(ConnectionPendingException.class, cause, "on " + stock);
                assertFalse(connecting.isDone());
                channel.close().sync();
            } finally {
                group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            }
        }
    }

    @Test
    void aClosedChannelJoinsAndLeavesNoGroup() throws Exception {
        NetworkInterface via = NetworkInterface.getByName("lo");
        InetSocketAddress to = new InetSocketAddress("239.1.2.3", 0);
        for (Stock stock : new Stock[] {Stock.EPOLL, null}) {
            EventLoopGroup group = Scene.group(stock);
            try {
                DatagramChannel channel = (DatagramChannel) new Bootstrap()
                        .group(group)
                        .channelFactory(() -> stock == null ? new QuoitDatagramChannel() : stock.datagram(null))
                        .handler(new ChannelInboundHandlerAdapter())
                        .bind("127.0.0.1", 0)
                        .sync()
                        .channel();
                channel.close().sync();
                assertInstanceOf(ClosedChannelException.class, channel.joinGroup(to, via).await().cause(), "on " + stock);
                assertInstanceOf(ClosedChannelException.class, channel.leaveGroup(to, via).await().cause(), "on " + stock);
            } finally {
                group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            }
        }
    }

    @Test
    void aConnectionPastTheLimitOfItsLoopSaysWhichItIs() throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(
                1, QuoitIoHandler.newFactory(UnderTest.config().withConnections(1)));
        Peers.Keeper keeper = new Peers.Keeper();
        try {
            Channel server = Peers.serve(
                    group, QuoitServerSocketChannel.class, new Peers.Accepted(child -> child.pipeline().addLast(keeper)),
                    new InetSocketAddress("127.0.0.1", 0));
            try (Socket first = Peers.connect(server);
                    Socket second = Peers.connect(server)) {
                Throwable cause = assertInstanceOf(SocketException.class, keeper.event());
                assertTrue(cause.getMessage().contains("QuoitIoHandlerConfig.withConnections"), cause.getMessage());
                assertEquals(-1, second.getInputStream().read());
                Throwable ours = new Bootstrap()
                        .group(group)
                        .channel(QuoitSocketChannel.class)
                        .handler(new ChannelInboundHandlerAdapter())
                        .connect(server.localAddress())
                        .await()
                        .cause();
                assertInstanceOf(ConnectException.class, ours);
                assertTrue(ours.getMessage().contains("QuoitIoHandlerConfig.withConnections"), ours.getMessage());
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void virtualThreadsAreRefusedWithAMessage() throws Exception {
        EventLoopGroup virtual = new MultiThreadIoEventLoopGroup(
                1, VirtualThreads.factory(), QuoitIoHandler.newFactory(UnderTest.config()));
        ChannelFuture register = virtual.register(new QuoitSocketChannel());
        assertTrue(virtual.terminationFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertFalse(register.isSuccess());
        assertLoggedOnce("give the event loop group a thread factory of platform threads");
    }
}
