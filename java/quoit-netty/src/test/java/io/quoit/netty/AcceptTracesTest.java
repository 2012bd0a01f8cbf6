package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What a server is told of those who connect, and they of it: on Netty's epoll transport first, and the same on this one. */
class AcceptTracesTest {
    private static final ChannelOption<Integer> UNKNOWN = ChannelOption.valueOf(AcceptTracesTest.class, "UNKNOWN");

    private enum Scenario {
        ONE_CONNECTS(scene -> {
            scene.options = bootstrap -> bootstrap.handler(new Listener(scene));
            scene.connect();
            scene.trace.await("listener: read complete");
            scene.trace.of("close of the listener", scene.server.close()).sync();
            scene.trace.await("listener: unregistered");
            scene.peerSends(3);
            scene.trace.await("data 3");
            scene.serverCloses();
            scene.peerReads();
        }),
        LISTENER_HANDLER_FAILS(scene -> {
            scene.options = bootstrap -> bootstrap.handler(new Listener(scene) {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    throw new IllegalStateException("the handler's own");
                }
            });
            scene.connect();
            scene.trace.await("listener: read complete");
            scene.serverCloses();
            scene.peerReads();
        }),
        LISTENER_KEEPS_A_CONNECTION_FROM_ITS_GROUP(scene -> {
            scene.options = bootstrap -> bootstrap.handler(new Listener(scene) {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) {
                    Channel child = (Channel) message;
                    scene.trace.add("active " + child.isActive() + ", open " + child.isOpen() + ", registered "
                            + child.isRegistered() + ", remote " + (child.remoteAddress() != null));
                    child.unsafe().closeForcibly();
                    scene.trace.add("active " + child.isActive() + ", open " + child.isOpen());
                }
            });
            scene.listen();
            scene.connectPeer();
            scene.trace.await("listener: read complete");
            scene.peerReads();
        }),
        LISTENER_CLOSES_AS_IT_ACCEPTS(scene -> {
            scene.options = bootstrap -> bootstrap.handler(new Listener(scene) {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    context.close();
                }
            });
            scene.connect();
            scene.trace.await("listener: unregistered");
            scene.peerSends(3);
            scene.trace.await("data 3");
            scene.serverCloses();
            scene.peerReads();
        }),
        LISTENER_WRITES_CONNECTS_AND_ENDS(scene -> {
            scene.options = bootstrap -> bootstrap.handler(new Listener(scene));
            scene.listen();
            scene.trace.of("write", scene.server.writeAndFlush(Peers.direct(new byte[1]))).await();
            scene.trace.of("connect", scene.server.connect(scene.server.localAddress())).await();
            scene.trace.of("disconnect", scene.server.disconnect()).await();
            scene.trace.outcome("open " + scene.server.isOpen() + ", active " + scene.server.isActive());
            scene.server.close().sync();
            scene.trace.await("listener: unregistered");
        }),
        LISTENER_IS_BOUND_TWICE(scene -> {
            scene.listen();
            scene.trace.of("bind", scene.server.bind(scene.server.localAddress())).await();
            scene.trace.outcome("open " + scene.server.isOpen() + ", active " + scene.server.isActive());
        }),
        CHILD_HANDLER_FAILS(scene -> {
            scene.options = bootstrap -> bootstrap.childHandler(new ChannelInitializer<>() {
                @Override
                protected void initChannel(Channel child) {
                    child.pipeline().addLast(scene.trace.recorder());
                    throw new IllegalStateException("the handler's own");
                }
            });
            scene.listen();
            scene.connectPeer();
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        CHILD_OPTION_IS_UNKNOWN(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(UNKNOWN, 1);
            scene.connect();
            scene.serverCloses();
            scene.peerReads();
        }),
        CHILD_IS_CLOSED_AS_ITS_HANDLER_IS_ADDED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    trace.of("close", context.close());
                }
            };
            scene.listen();
            scene.connectPeer();
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        CHILD_IS_CLOSED_AS_IT_IS_REGISTERED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRegistered(ChannelHandlerContext context) {
                    trace.add("registered");
                    trace.of("close", context.close());
                }
            };
            scene.listen();
            scene.connectPeer();
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        CHILD_WRITES_AS_IT_IS_REGISTERED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRegistered(ChannelHandlerContext context) {
                    trace.add("registered");
                    trace.of("write", context.writeAndFlush(Peers.direct(new byte[3])));
                }
            };
            scene.connect();
            scene.peerReads(3);
            scene.peer.shutdownOutput();
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        CHILD_IS_TAKEN_OFF_ITS_LOOP(scene -> {
            scene.connect();
            scene.trace.of("deregister", scene.child.deregister()).await();
            scene.trace.outcome("registered " + scene.child.isRegistered() + ", open " + scene.child.isOpen());
        }),
        CHILD_IS_TOLD_ITS_ADDRESSES(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                private void addresses(String when, ChannelHandlerContext context) {
                    trace.add(when + ": local " + (context.channel().localAddress() != null) + ", remote "
                            + (context.channel().remoteAddress() != null) + ", active " + context.channel().isActive());
                }

                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    addresses("added", context);
                }

                @Override
                public void channelInactive(ChannelHandlerContext context) throws Exception {
                    super.channelInactive(context);
                    addresses("inactive", context);
                }

                @Override
                public void handlerRemoved(ChannelHandlerContext context) {
                    addresses("removed", context);
                }
            };
            scene.connect();
            scene.peer.close();
            scene.trace.await("unregistered");
        }),
        CONNECTIONS_WAIT_WHILE_NOBODY_ACCEPTS(scene -> {
            scene.options = bootstrap ->
                    bootstrap.option(ChannelOption.SO_BACKLOG, 2).handler(new Listener(scene));
            scene.acceptLate();
            scene.trace.await("listener: active");
            scene.peerSends(3);
            scene.trace.add("autoRead is on");
            scene.accept();
            scene.trace.await("data 3");
            scene.trace.await("listener: read complete");
            scene.serverCloses();
            scene.peerReads();
        });

        private final Traces.Steps<Scene> steps;

        Scenario(Traces.Steps<Scene> steps) {
            this.steps = steps;
        }
    }

    /** Tells what the server's own channel is told, and hands it on. */
    private static class Listener extends ChannelInboundHandlerAdapter {
        private final Scene scene;

        Listener(Scene scene) {
            this.scene = scene;
        }

        private void add(String step) {
            scene.trace.add("listener: " + step);
        }

        @Override
        public void channelActive(ChannelHandlerContext context) throws Exception {
            add("active");
            super.channelActive(context);
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
            add("a connection");
            super.channelRead(context, message);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) throws Exception {
            add("read complete");
            super.channelReadComplete(context);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) throws Exception {
            add("exception " + Trace.kind(cause));
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) throws Exception {
            add("inactive");
            super.channelInactive(context);
        }

        @Override
        public void channelUnregistered(ChannelHandlerContext context) throws Exception {
            add("unregistered");
            super.channelUnregistered(context);
        }
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> scenario == Scenario.LISTENER_IS_BOUND_TWICE
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    private static final List<String> TAKEN_OFF =
            List.of("active", "unregistered", "deregister: done", "registered false, open false");

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(
            Map.of("CHILD_IS_TAKEN_OFF_ITS_LOOP on TCP", TAKEN_OFF, "CHILD_IS_TAKEN_OFF_ITS_LOOP on UNIX", TAKEN_OFF),
            Set.of("LISTENER_IS_BOUND_TWICE on TCP"));

    @ParameterizedTest
    @MethodSource("scenarios")
    void aServerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family, family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp, scenario.steps);
    }
}
