package io.quoit.netty;

import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.DuplexChannel;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;
import java.util.Map;
import java.util.Set;
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

    /** A connection's life. */
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
        PEER_RESETS_BEHIND_DATA_THAT_NOBODY_READS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.peerResets();
            scene.child.read();
            scene.trace.await("inactive");
        }, true),
        PEER_RESETS_BEHIND_MUCH_THAT_NOBODY_READS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.child.read();
            scene.trace.await("data 3");
            // One read brings what there is room for.
            scene.peerSends(UnderTest.SMALL ? 1000 : 5000);
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

        private final Traces.Steps<Scene> steps;
        private final boolean onlyTcp;

        Scenario(Traces.Steps<Scene> steps) {
            this(steps, false);
        }

        Scenario(Traces.Steps<Scene> steps, boolean onlyTcp) {
            this.steps = steps;
            this.onlyTcp = onlyTcp;
        }
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> scenario.onlyTcp
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(Map.of(
            "SERVER_CLOSES_WITH_UNREAD_DATA on TCP",
            List.of("active", "inactive", "unregistered", "close: done", "the peer reads 0 and its end"),
            "ADDRESS_IS_IN_USE on UNIX",
            List.of("bind: IOException (Address already in use)")),
            Set.of());

    @ParameterizedTest
    @MethodSource("scenarios")
    void aHandlerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family,
                family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp,
                scenario.steps);
    }
}
