package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.socket.DuplexChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What a handler is told when connections end, in order, and what the peer sees of it: on Netty's epoll transport first, and
 * the same on this one. What differs stands in docs/netty.md.
 */
class TracesTest {
    private static final int MUCH = 8 << 20;

    private interface Steps {
        void run(Scene scene) throws Exception;
    }

    /** A connection's life, step by step: each waits for what it must come behind. */
    private enum Scenario {
        PEER_ENDS(scene -> {
            scene.connect();
            scene.peerSends(3);
            scene.peer.shutdownOutput();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        PEER_ENDS_WITHOUT_A_WORD(scene -> {
            scene.connect();
            scene.peer.shutdownOutput();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        PEER_ENDS_ITS_DIRECTION(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            scene.peerSends(3);
            scene.peer.shutdownOutput();
            scene.trace.await("event ChannelInputShutdownReadComplete");
            scene.write(5).sync();
            scene.serverCloses();
            scene.peerReads();
        }),
        PEER_ENDS_ITS_DIRECTION_AND_SO_DOES_THE_SERVER(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            scene.peer.shutdownOutput();
            scene.trace.await("event ChannelInputShutdownReadComplete");
            scene.shutdownOutput();
            scene.peerReads();
            scene.serverCloses();
        }),
        PEER_ENDS_WHILE_NOBODY_READS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.peer.shutdownOutput();
            scene.child.read();
            scene.trace.await("data 3");
            scene.child.read();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        PEER_CLOSES_BEFORE_IT_IS_ACCEPTED(scene -> {
            scene.acceptLate();
            scene.peerSends(3);
            scene.peer.close();
            scene.accept();
            scene.trace.await("inactive");
        }),
        PEER_RESETS(scene -> {
            scene.connect();
            scene.peerResets();
            scene.trace.await("inactive");
        }, true),
        PEER_RESETS_BEHIND_DATA(scene -> {
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("data 3");
            scene.peerResets();
            scene.trace.await("inactive");
        }, true),
        PEER_RESETS_BEFORE_IT_IS_ACCEPTED(scene -> {
            scene.acceptLate();
            scene.peerResets();
            scene.accept();
            scene.trace.await("inactive");
        }, true),
        PEER_RESETS_WHILE_NOBODY_READS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerResets();
            scene.child.read();
            scene.trace.await("inactive");
        }, true),
        PEER_CLOSES_WITH_UNREAD_DATA(scene -> {
            scene.connect();
            scene.write(3).sync();
            scene.peerReadsOne();
            scene.peer.close();
            scene.trace.await("inactive");
        }),
        SERVER_CLOSES(scene -> {
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("data 3");
            scene.serverCloses();
            scene.peerReads();
        }),
        SERVER_CLOSES_WITH_UNREAD_DATA(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.serverCloses();
            scene.peerReads();
        }, true),
        SERVER_WRITES_AND_CLOSES(scene -> {
            scene.connect();
            scene.write(500_000).addListener(ChannelFutureListener.CLOSE);
            scene.peerReads();
            scene.trace.await("inactive");
        }),
        SERVER_CLOSES_WHILE_MUCH_IS_QUEUED(scene -> {
            scene.connect();
            scene.write(MUCH);
            scene.serverCloses();
            scene.awaitWrite();
        }),
        SERVER_CLOSES_TWICE(scene -> {
            scene.connect();
            scene.serverCloses();
            scene.serverCloses();
            scene.peerReads();
        }),
        SERVER_RESETS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.SO_LINGER, 0);
            scene.connect();
            scene.serverCloses();
            scene.peerReads();
        }, true),
        SERVER_DISCONNECTS(scene -> {
            scene.connect();
            scene.trace.of("disconnect", scene.child.disconnect()).sync();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        SERVER_ENDS_ITS_DIRECTION(scene -> {
            scene.connect();
            scene.write(5).sync();
            scene.shutdownOutput();
            scene.peerReads();
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.write(1).await();
            scene.peer.close();
            scene.trace.await("inactive");
        }),
        SERVER_ENDS_ITS_DIRECTION_WHILE_MUCH_IS_QUEUED(scene -> {
            scene.connect();
            scene.write(MUCH);
            scene.shutdownOutput();
            scene.awaitWrite();
            scene.serverCloses();
        }),
        SERVER_ENDS_WHAT_IT_RECEIVES(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            scene.trace.of("shutdownInput", ((DuplexChannel) scene.child).shutdownInput()).sync();
            scene.trace.await("event ChannelInputShutdownReadComplete");
            scene.write(5).sync();
            scene.serverCloses();
            scene.peerReads();
        }),
        SERVER_ENDS_BOTH_DIRECTIONS(scene -> {
            scene.connect();
            scene.trace.of("shutdown", ((DuplexChannel) scene.child).shutdown()).sync();
            scene.peerReads();
            scene.serverCloses();
        }),
        SERVER_WRITES_BEHIND_ITS_END(scene -> {
            scene.connect();
            scene.serverCloses();
            scene.write(3).await();
            scene.trace.of("shutdownOutput", ((DuplexChannel) scene.child).shutdownOutput()).await();
            scene.child.read();
            scene.peerReads();
        }),
        SERVER_CLOSES_AS_IT_BECOMES_ACTIVE(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelActive(ChannelHandlerContext context) throws Exception {
                    super.channelActive(context);
                    trace.of("close", context.close());
                }
            };
            scene.connect();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        SERVER_CLOSES_AS_IT_READS(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    trace.of("close", context.close());
                }
            };
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        HANDLER_FAILS_AS_IT_READS(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("exception IllegalStateException");
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.peer.shutdownOutput();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        HANDLER_FAILS_AS_IT_BECOMES_ACTIVE(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelActive(ChannelHandlerContext context) throws Exception {
                    super.channelActive(context);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.trace.await("exception IllegalStateException");
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.serverCloses();
            scene.peerReads();
        }),
        HANDLER_FAILS_AS_IT_BECOMES_INACTIVE(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelInactive(ChannelHandlerContext context) throws Exception {
                    super.channelInactive(context);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.peer.shutdownOutput();
            scene.trace.await("exception IllegalStateException");
            scene.peerReads();
        }),
        LISTENER_CLOSES_WITH_CONNECTIONS_IN_ITS_QUEUE(scene -> {
            scene.acceptLate();
            scene.trace.of("close of the listener", scene.server.close()).sync();
            scene.peerReads();
        }, true),
        CONNECT_IS_REFUSED(scene -> {
            scene.listen();
            SocketAddress nobody = scene.server.localAddress();
            scene.server.close().sync();
            scene.connectTo(nobody).await();
        }),
        CONNECT_IS_CANCELLED(scene -> {
            ChannelFuture connecting = scene.connectTo(SilentListener.address());
            connecting.cancel(true);
            connecting.channel().closeFuture().sync();
        }, true),
        CONNECT_IS_CLOSED(scene -> {
            ChannelFuture connecting = scene.connectTo(SilentListener.address());
            connecting.channel().close().sync();
            connecting.await();
        }, true),
        CONNECT_TAKES_TOO_LONG(scene -> {
            scene.connectMillis = 50;
            scene.connectTo(SilentListener.address()).await();
        }, true),
        CLIENT_IS_CLOSED_BY_THE_SERVER(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelActive(ChannelHandlerContext context) {
                    context.close();
                }

                @Override
                public void channelInactive(ChannelHandlerContext context) {}

                @Override
                public void channelUnregistered(ChannelHandlerContext context) {}
            };
            scene.listen();
            scene.connectTo(scene.server.localAddress()).sync();
            scene.trace.await("unregistered");
        }),
        ADDRESS_IS_IN_USE(scene -> {
            scene.listen();
            SocketAddress taken = scene.server.localAddress();
            scene.trace.of("bind", scene.bootstrap().bind(taken)).await();
        }),
        ADDRESS_IS_NOT_HERE(
                // TEST-NET-1 (RFC 5737).
                scene -> scene.trace
                        .of("bind", scene.bootstrap().bind(new InetSocketAddress("192.0.2.1", 0)))
                        .await(),
                true);

        private final Steps steps;
        private final boolean onlyTcp;

        Scenario(Steps steps) {
            this(steps, false);
        }

        Scenario(Steps steps, boolean onlyTcp) {
            this.steps = steps;
            this.onlyTcp = onlyTcp;
        }
    }

    private interface MakesRecorder {
        Trace.Recorder of(Trace trace);
    }

    private interface Options {
        ServerBootstrap on(ServerBootstrap bootstrap);
    }

    /** A server, its only connection, and that one's peer. */
    private static final class Scene implements AutoCloseable {
        private final Side side;
        private final Path folder;
        private final Trace trace = new Trace();
        private final LinkedBlockingQueue<Channel> accepted = new LinkedBlockingQueue<>();
        private final EventLoopGroup group;

        private Options options = bootstrap -> bootstrap;
        private MakesRecorder recorder = trace -> trace.new Recorder();
        private int connectMillis = 30_000;

        private Channel server;
        private Channel child;
        private SocketChannel peer;
        private ChannelFuture lastWrite;

        /** On TCP, or on Unix sockets with a folder for them. */
        Scene(Side side, Path folder) {
            this.side = side;
            this.folder = folder;
            group = side.group(UnderTest.config());
        }

        private Class<? extends ServerChannel> serverClass() {
            if (folder == null) {
                return side.serverClass();
            }
            return side == Side.OURS ? QuoitServerDomainSocketChannel.class : EpollServerDomainSocketChannel.class;
        }

        private Class<? extends Channel> clientClass() {
            if (folder == null) {
                return side == Side.OURS ? QuoitSocketChannel.class : Stock.EPOLL.streamClass;
            }
            return side == Side.OURS ? QuoitDomainSocketChannel.class : EpollDomainSocketChannel.class;
        }

        ServerBootstrap bootstrap() {
            ServerBootstrap bootstrap = new ServerBootstrap()
                    .group(group)
                    .channel(serverClass())
                    .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES)
                    .childHandler(new ChannelInitializer<>() {
                        @Override
                        protected void initChannel(Channel channel) {
                            accepted.add(channel);
                            channel.pipeline().addLast(recorder.of(trace));
                        }
                    });
            return options.on(bootstrap);
        }

        void listen() throws InterruptedException {
            server = bootstrap()
                    .bind(folder == null
                            ? new InetSocketAddress("127.0.0.1", 0)
                            : new DomainSocketAddress(folder.resolve("socket").toString()))
                    .sync()
                    .channel();
        }

        private void connectPeer() throws IOException {
            peer = SocketChannel.open(folder == null ? StandardProtocolFamily.INET : StandardProtocolFamily.UNIX);
            peer.setOption(StandardSocketOptions.SO_RCVBUF, Peers.NARROW_BYTES);
            peer.connect(
                    folder == null ? server.localAddress() : UnixDomainSocketAddress.of(folder.resolve("socket")));
        }

        void connect() throws Exception {
            listen();
            connectPeer();
            accept();
            trace.await("active");
        }

        /** Connects to a server that does not accept yet. */
        void acceptLate() throws Exception {
            Options before = options;
            options = bootstrap -> before.on(bootstrap).option(ChannelOption.AUTO_READ, false);
            listen();
            connectPeer();
        }

        void accept() throws InterruptedException {
            server.config().setAutoRead(true);
            child = accepted.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        }

        ChannelFuture connectTo(SocketAddress address) {
            ChannelFuture connecting = new Bootstrap()
                    .group(group)
                    .channel(clientClass())
                    .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, connectMillis)
                    .handler(trace.recorder())
                    .connect(address);
            return trace.of("connect", connecting);
        }

        void peerSends(int length) throws IOException {
            ByteBuffer bytes = ByteBuffer.allocate(length);
            while (bytes.hasRemaining()) {
                peer.write(bytes);
            }
        }

        void peerResets() throws IOException {
            peer.setOption(StandardSocketOptions.SO_LINGER, 0);
            peer.close();
        }

        /** Tells all that comes, and how it ends. */
        void peerReads() {
            long length = 0;
            String end = "its end";
            ByteBuffer room = ByteBuffer.allocate(64 << 10);
            try {
                for (int read = peer.read(room); read >= 0; read = peer.read(room)) {
                    length += read;
                    room.clear();
                }
            } catch (IOException reset) {
                end = Trace.kind(reset);
            }
            trace.outcome("the peer reads " + length + " and " + end);
        }

        /** Reads the first byte of what comes, so that the rest has come, too. */
        void peerReadsOne() throws IOException {
            peer.read(ByteBuffer.allocate(1));
        }

        ChannelFuture write(int length) {
            lastWrite = trace.of("write of " + length, child.writeAndFlush(Peers.direct(new byte[length])));
            return lastWrite;
        }

        void awaitWrite() throws InterruptedException {
            lastWrite.await();
        }

        void shutdownOutput() throws InterruptedException {
            trace.of("shutdownOutput", ((DuplexChannel) child).shutdownOutput()).sync();
        }

        void serverCloses() throws InterruptedException {
            trace.of("close", child.close()).sync();
        }

        @Override
        public void close() throws Exception {
            if (peer != null) {
                peer.close();
            }
            group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        }
    }

    private static List<String> traced(Side side, Scenario scenario, boolean unix) throws Exception {
        Path folder = unix ? Files.createTempDirectory("quoit") : null;
        try (Scene scene = new Scene(side, folder)) {
            try {
                scenario.steps.run(scene);
            } catch (AssertionError | Exception failure) {
                throw new AssertionError(side + ": " + failure.getMessage() + "; " + scene.trace.steps(), failure);
            }
            // What happens by itself behind that has happened with the group.
            scene.close();
            return scene.trace.steps();
        } finally {
            if (folder != null) {
                Files.deleteIfExists(folder.resolve("socket"));
                Files.delete(folder);
            }
        }
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> scenario.onlyTcp
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Map<String, List<String>> DIFFERS = Map.of(
            "SERVER_CLOSES_WITH_UNREAD_DATA on TCP",
            List.of("active", "inactive", "unregistered", "close: done", "the peer reads 0 and its end"),
            "ADDRESS_IS_IN_USE on UNIX",
            List.of("bind: IOException (Address already in use)"));

    @ParameterizedTest
    @MethodSource("scenarios")
    void aHandlerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        boolean unix = family.equals("UNIX");
        List<String> stock = traced(Side.STOCK, scenario, unix);
        assertFalse(stock.isEmpty());
        List<String> ours = traced(Side.OURS, scenario, unix);
        List<String> pinned = DIFFERS.get(scenario + " on " + family);
        if (pinned != null) {
            assertNotEquals(stock, ours, "it differs no more");
        }
        assertEquals(pinned != null ? pinned : stock, ours);
    }
}
