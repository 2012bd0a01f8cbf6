package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.BindException;
import java.net.ConnectException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The files of Unix sockets, which stay when their sockets are gone: with Netty's epoll transport first, and as there. */
class SocketFilesTest {
    @TempDir
    Path folder;

    private EventLoopGroup group;

    /** Netty's transport, and null for this one. */
    static Stream<Arguments> transports() {
        return Stream.of(Arguments.of(Stock.EPOLL), Arguments.of((Stock) null));
    }

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private ChannelFuture bind(Stock stock, Path path) throws InterruptedException {
        return new ServerBootstrap()
                .group(group)
                .channel(stock == null ? QuoitServerDomainSocketChannel.class : EpollServerDomainSocketChannel.class)
                .childHandler(Peers.each(Peers.Echo::new))
                .bind(new DomainSocketAddress(path.toString()))
                .await();
    }

    private Bootstrap client(Stock stock) {
        return new Bootstrap()
                .group(group)
                .channel(stock == null ? QuoitDomainSocketChannel.class : EpollDomainSocketChannel.class)
                .handler(new ChannelInboundHandlerAdapter());
    }

    private static void assertEchoes(Path path) throws Exception {
        try (SocketChannel peer = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
            peer.write(ByteBuffer.wrap(new byte[] {7}));
            ByteBuffer echo = ByteBuffer.allocate(1);
            peer.read(echo);
            assertEquals(7, echo.get(0));
        }
    }

    /** A server's process was killed: its file is still there, and nobody listens. */
    @ParameterizedTest
    @MethodSource("transports")
    void aServerStartsWhereOneWasKilled(Stock stock) throws Exception {
        group = Scene.group(stock);
        Path path = folder.resolve("server");
        try (ServerSocketChannel killed = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            // The JDK does not remove it.
            killed.bind(UnixDomainSocketAddress.of(path));
        }
        assertTrue(Files.exists(path));
        ChannelFuture bound = bind(stock, path);
        assertNull(bound.cause());
        assertEchoes(path);
        bound.channel().close().sync();
        assertFalse(Files.exists(path));
    }

    /** Elsewhere it would be removed, whatever it is. */
    @Test
    void whoListensKeepsItsPathAndSoDoesWhatIsNoSocket() throws Exception {
        group = Scene.group(null);
        Path path = folder.resolve("server");
        Channel server = bind(null, path).sync().channel();
        assertInstanceOf(BindException.class, bind(null, path).cause());
        assertEchoes(path);
        Path file = Files.writeString(folder.resolve("file"), "precious");
        assertInstanceOf(BindException.class, bind(null, file).cause());
        assertEquals("precious", Files.readString(file));
        Path link = Files.createSymbolicLink(folder.resolve("link"), path);
        assertInstanceOf(BindException.class, bind(null, link).cause());
        assertTrue(Files.isSymbolicLink(link));
        server.close().sync();
    }

    /** A file whose name looks like what other programs write for an abstract name. */
    @ParameterizedTest
    @MethodSource("transports")
    void aNameThatBeginsWithAnAtSignIsThatOfAFile(Stock stock) throws Exception {
        group = Scene.group(stock);
        Path path = Path.of("@quoit-netty-test-" + ProcessHandle.current().pid() + "-" + UnderTest.ENGINE);
        Channel server = bind(stock, path).sync().channel();
        assertTrue(Files.exists(path));
        Channel client = client(stock).connect(server.localAddress()).sync().channel();
        assertEquals(server.localAddress(), client.remoteAddress());
        client.close().sync();
        server.close().sync();
        assertFalse(Files.exists(path));
    }

    /** As systemd-escape makes names of others; and what libquoit writes addresses with. */
    @ParameterizedTest
    @MethodSource("transports")
    void aNameIsTakenAsItIs(Stock stock) throws Exception {
        group = Scene.group(stock);
        for (String name : List.of("run\\x2dapp", "back\\slash", "end\\", "a@b", "größe")) {
            Path path = folder.resolve(name);
            DomainSocketAddress own = new DomainSocketAddress(path + "-client\\");
            Channel server = bind(stock, path).sync().channel();
            assertTrue(Files.exists(path));
            Channel client = client(stock).connect(server.localAddress(), own).sync().channel();
            assertEquals(server.localAddress(), client.remoteAddress());
            assertEquals(own, client.localAddress());
            assertEchoes(path);
            client.close().sync();
            server.close().sync();
            assertFalse(Files.exists(path));
        }
    }

    /** The file of a client stays when it is closed, and is no obstacle to the next one. */
    @ParameterizedTest
    @MethodSource("transports")
    void aClientBindsAndConnectsAgainAndAgain(Stock stock) throws Exception {
        group = Scene.group(stock);
        Channel server = bind(stock, folder.resolve("server")).sync().channel();
        DomainSocketAddress own = new DomainSocketAddress(folder.resolve("client").toString());
        for (int time = 0; time < 2; time++) {
            Channel client = client(stock).register().sync().channel();
            client.bind(own).sync();
            client.connect(server.localAddress()).sync();
            assertEquals(own, client.localAddress());
            client.close().sync();
            client = client(stock).connect(server.localAddress(), own).sync().channel();
            assertEquals(own, client.localAddress());
            client.close().sync();
        }
        server.close().sync();
    }

    @ParameterizedTest
    @MethodSource("transports")
    void aFileThatCannotBeRemovedIsNoFailureOfTheClose(Stock stock) throws Exception {
        group = Scene.group(stock);
        Path path = folder.resolve("server");
        Channel server = bind(stock, path).sync().channel();
        Files.delete(path);
        Files.createFile(Files.createDirectory(path).resolve("somebody else's"));
        assertNull(server.close().await().cause());
        assertFalse(server.isOpen());
    }

    /** Their causes have a type by which clients try again, and say what is wrong. */
    @ParameterizedTest
    @MethodSource("transports")
    void whatCannotBeConnectedToFailsWithAConnectException(Stock stock) throws Exception {
        group = Scene.group(stock);
        try (ServerSocketChannel busy = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
                SocketChannel first = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            Path path = folder.resolve("busy");
            // Its queue has room for two, and nobody accepts.
            busy.bind(UnixDomainSocketAddress.of(path), 1);
            first.connect(UnixDomainSocketAddress.of(path));
            Channel second = client(stock).connect(new DomainSocketAddress(path.toString())).sync().channel();
            Throwable full = client(stock).connect(new DomainSocketAddress(path.toString())).await().cause();
            assertInstanceOf(ConnectException.class, full);
            assertTrue(full.getMessage().contains("Resource temporarily unavailable"), full.getMessage());
            second.close().sync();
        }
        Path file = Files.createFile(folder.resolve("file"));
        Throwable wrong = client(stock)
                .connect(new DomainSocketAddress(file.resolve("socket").toString()))
                .await()
                .cause();
        assertInstanceOf(ConnectException.class, wrong);
        assertTrue(wrong.getMessage().contains("Not a directory"), wrong.getMessage());
    }
}
