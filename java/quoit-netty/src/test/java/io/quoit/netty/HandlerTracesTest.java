package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPromise;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.handler.timeout.IdleState;
import io.netty.handler.timeout.IdleStateEvent;
import io.netty.handler.timeout.IdleStateHandler;
import io.netty.handler.timeout.ReadTimeoutHandler;
import io.netty.handler.timeout.WriteTimeoutHandler;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Handlers that fail, time-outs, writability and cancelling: what is told, on Netty's epoll transport first, and the same on
 * this one.
 */
class HandlerTracesTest {
    private static final int MUCH = 8 << 20;
    private static final long SHORT_MILLIS = 30;

    private enum Scenario {
        FAILS_AS_IT_IS_ADDED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.listen();
            scene.connectPeer();
            scene.accept();
            scene.peer.shutdownOutput();
            scene.peerReads();
        }),
        FAILS_AS_IT_IS_REGISTERED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRegistered(ChannelHandlerContext context) {
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            ends(scene);
        }),
        FAILS_AS_ITS_READ_IS_COMPLETE(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelReadComplete(ChannelHandlerContext context) {
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("exception IllegalStateException");
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.trace.await("exception IllegalStateException", 2);
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_AS_ITS_PEER_ENDS(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void userEventTriggered(ChannelHandlerContext context, Object event) {
                    super.userEventTriggered(context, event);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.peer.shutdownOutput();
            scene.trace.await("exception IllegalStateException", 2);
            scene.write(3).await();
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_AS_IT_MAY_WRITE(scene -> {
            scene.options = HandlerTracesTest::lowMarks;
            scene.recorder = trace -> trace.new Closely() {
                @Override
                public void channelReadComplete(ChannelHandlerContext context) {}

                @Override
                public void channelWritabilityChanged(ChannelHandlerContext context) throws Exception {
                    super.channelWritabilityChanged(context);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            writeInLoop(scene, MUCH);
            scene.peerReads(MUCH);
            scene.awaitWrite();
            scene.trace.await("exception IllegalStateException", 2);
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_AS_IT_IS_UNREGISTERED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelUnregistered(ChannelHandlerContext context) {
                    super.channelUnregistered(context);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.serverCloses();
            scene.peerReads();
            scene.trace.await("exception IllegalStateException");
        }),
        FAILS_AS_IT_IS_REMOVED(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerRemoved(ChannelHandlerContext context) {
                    trace.add("removed");
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.connect();
            scene.serverCloses();
            scene.peerReads();
            scene.trace.await("removed");
        }),
        FAILS_AS_IT_CATCHES(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    throw new IllegalStateException("the handler's own");
                }

                @Override
                public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
                    super.exceptionCaught(context, cause);
                    throw new IllegalArgumentException("once more");
                }
            };
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("exception IllegalStateException");
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_WITH_AN_ERROR(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    throw new StackOverflowError();
                }
            };
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("exception StackOverflowError");
            scene.peerSends(4);
            scene.trace.await("data 4");
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_AS_IT_WRITES(scene -> {
            scene.connect();
            scene.child.pipeline().addLast(new ChannelDuplexHandler() {
                @Override
                public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
                    io.netty.util.ReferenceCountUtil.release(message);
                    throw new IllegalStateException("the handler's own");
                }
            });
            scene.write(3).await();
            ends(scene);
        }),
        FAILS_AS_IT_FLUSHES(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChannelDuplexHandler() {
                @Override
                public void flush(ChannelHandlerContext context) {
                    throw new IllegalStateException("the handler's own");
                }
            });
            ChannelFuture written = scene.write(3);
            scene.trace.await("exception IllegalStateException");
            scene.serverCloses();
            written.await();
            scene.peerReads();
        }),
        FAILS_AS_IT_ASKS_TO_READ(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChannelDuplexHandler() {
                @Override
                public void read(ChannelHandlerContext context) {
                    throw new IllegalStateException("the handler's own");
                }
            });
            scene.child.read();
            scene.trace.await("exception IllegalStateException");
            scene.serverCloses();
            scene.peerReads();
        }),
        FAILS_AS_IT_CLOSES(scene -> {
            scene.connect();
            scene.child.pipeline().addLast(new ChannelDuplexHandler() {
                @Override
                public void close(ChannelHandlerContext context, ChannelPromise promise) {
                    throw new IllegalStateException("the handler's own");
                }
            });
            scene.trace.of("close", scene.child.close()).await();
            ends(scene);
        }),
        PROMISE_LISTENER_FAILS(scene -> {
            scene.connect();
            ChannelFuture written = scene.write(3);
            written.addListener(done -> {
                throw new IllegalStateException("the listener's own");
            });
            written.await();
            ends(scene);
        }),
        READ_TAKES_TOO_LONG(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    context.pipeline().addFirst(new ReadTimeoutHandler(SHORT_MILLIS, TimeUnit.MILLISECONDS));
                }
            };
            scene.connect();
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        WRITE_TAKES_TOO_LONG(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    context.pipeline().addFirst(new WriteTimeoutHandler(SHORT_MILLIS, TimeUnit.MILLISECONDS));
                }
            };
            scene.connect();
            scene.write(MUCH);
            scene.trace.await("unregistered");
            scene.awaitWrite();
        }),
        WRITE_IS_IN_TIME(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    context.pipeline().addFirst(new WriteTimeoutHandler(Peers.PATIENCE_SECONDS));
                }
            };
            scene.connect();
            scene.write(MUCH);
            scene.peerReads(MUCH);
            scene.awaitWrite();
            scene.serverCloses();
            scene.peerReads();
        }),
        IS_IDLE(scene -> {
            scene.recorder = idle(false, state -> true, context -> {});
            scene.connect();
            scene.trace.await("FIRST_READER_IDLE_STATE_EVENT");
            scene.trace.await("FIRST_WRITER_IDLE_STATE_EVENT");
            scene.trace.await("FIRST_ALL_IDLE_STATE_EVENT");
        }),
        IS_IDLE_WITH_A_WRITE_THAT_NOBODY_TAKES(scene -> {
            // It writes before the time begins that it is idle for. What it is told again when the write is done, as that is a
            // write, depends on how soon it is closed.
            Set<IdleState> told = EnumSet.noneOf(IdleState.class);
            scene.recorder = idle(true, told::add, context -> scene.write(context.channel(), MUCH));
            scene.connect();
            scene.trace.await("FIRST_WRITER_IDLE_STATE_EVENT");
            scene.peerReads(MUCH);
            scene.awaitWrite();
        }),
        MAY_NOT_WRITE_AND_THEN_MAY(scene -> {
            scene.options = HandlerTracesTest::lowMarks;
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            writeInLoop(scene, MUCH);
            scene.trace.outcome("writable " + scene.child.isWritable() + ", before unwritable "
                    + scene.child.bytesBeforeUnwritable());
            scene.peerReads(MUCH);
            scene.awaitWrite();
            scene.trace.await("writable true");
            scene.trace.outcome("writable " + scene.child.isWritable() + ", before unwritable "
                    + scene.child.bytesBeforeUnwritable() + ", before writable " + scene.child.bytesBeforeWritable());
            scene.serverCloses();
            scene.trace.await("unregistered");
            scene.trace.outcome("writable " + scene.child.isWritable() + ", before unwritable "
                    + scene.child.bytesBeforeUnwritable() + ", before writable " + scene.child.bytesBeforeWritable());
        }),
        MAY_NOT_WRITE_AND_ENDS(scene -> {
            scene.options = HandlerTracesTest::lowMarks;
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            writeInLoop(scene, MUCH);
            scene.peerReadsOne();
            scene.peerResets();
            scene.trace.await("unregistered");
            scene.awaitWrite();
        }),
        MAY_NOT_WRITE_BY_THE_USERS_OWN_WISH(scene -> {
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            inLoop(scene, () -> scene.child.unsafe().outboundBuffer().setUserDefinedWritability(1, false));
            scene.trace.await("writable false");
            scene.write(3).await();
            inLoop(scene, () -> scene.child.unsafe().outboundBuffer().setUserDefinedWritability(1, true));
            scene.trace.await("writable true");
            scene.serverCloses();
            scene.peerReads();
        }),
        MARKS_MOVE_WHILE_IT_WRITES(scene -> {
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            inLoop(scene, () -> {
                scene.child.write(Peers.direct(new byte[20_000]));
                scene.trace.add("writable " + scene.child.isWritable());
                scene.child.config().setWriteBufferWaterMark(new WriteBufferWaterMark(1000, 10_000));
                scene.trace.add("writable " + scene.child.isWritable() + " with lower marks");
                scene.child.write(Peers.direct(new byte[1]));
                scene.trace.add("writable " + scene.child.isWritable() + " with a byte more");
                scene.child.flush();
            });
            scene.peerReads(20_001);
            scene.trace.await("writable true", 2);
            scene.serverCloses();
        }),
        WRITE_IS_CANCELLED(scene -> {
            scene.connect();
            inLoop(scene, () -> {
                for (int length = 1; length <= 3; length++) {
                    ChannelFuture written =
                            scene.trace.of("write of " + length, scene.child.write(Peers.direct(new byte[length])));
                    if (length == 2) {
                        scene.trace.outcome("cancelled " + written.cancel(false));
                    }
                }
                scene.child.flush();
            });
            // It goes behind them, and is told of last.
            scene.write(5).await();
            ends(scene);
        }),
        EACH_WRITE_IS_CANCELLED(scene -> {
            scene.connect();
            inLoop(scene, () -> {
                for (int length = 1; length <= 3; length++) {
                    scene.trace
                            .of("write of " + length, scene.child.write(Peers.direct(new byte[length])))
                            .cancel(false);
                }
                scene.child.flush();
            });
            scene.write(5).await();
            ends(scene);
        }),
        WRITE_IS_CANCELLED_BEHIND_ITS_FLUSH(scene -> {
            scene.connect();
            inLoop(scene, () -> {
                ChannelFuture written = scene.trace.of("write", scene.child.writeAndFlush(Peers.direct(new byte[MUCH])));
                scene.trace.outcome("cancelled " + written.cancel(false));
            });
            scene.peerReads(MUCH);
            scene.serverCloses();
            scene.peerReads();
        }),
        CLOSE_IS_CANCELLED(scene -> {
            scene.connect();
            ChannelPromise promise = scene.child.newPromise();
            promise.cancel(false);
            scene.trace.of("close", scene.child.close(promise)).await();
            scene.trace.outcome("open " + scene.child.isOpen());
            ends(scene);
        }),
        WRITES_WITH_A_VOID_PROMISE(scene -> {
            scene.connect();
            inLoop(scene, () -> scene.child.writeAndFlush(Peers.direct(new byte[3]), scene.child.voidPromise()));
            scene.write(5).await();
            ends(scene);
        }),
        WRITES_WITH_A_VOID_PROMISE_ON_A_CLOSED_CHANNEL(scene -> {
            scene.connect();
            scene.serverCloses();
            scene.trace.await("unregistered");
            scene.child.writeAndFlush(Peers.direct(new byte[3]), scene.child.voidPromise());
            scene.group.next().submit(() -> {}).sync();
            scene.peerReads();
        }),
        WRITES_WHAT_IS_NO_BUFFER(scene -> {
            scene.connect();
            scene.trace.of("write", scene.child.writeAndFlush("a text")).await();
            ends(scene);
        }),
        WRITES_LITTLE_THAT_IS_RELEASED(scene -> writesReleased(scene, 10)),
        WRITES_MUCH_THAT_IS_RELEASED(scene -> writesReleased(scene, 200_000));

        private final Traces.Steps<Scene> steps;

        Scenario(Traces.Steps<Scene> steps) {
            this.steps = steps;
        }
    }

    private static io.netty.bootstrap.ServerBootstrap lowMarks(io.netty.bootstrap.ServerBootstrap bootstrap) {
        return bootstrap.childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(1000, 10_000));
    }

    private static Scene.MakesRecorder idle(
            boolean observesOutput, Predicate<IdleState> isToBeTold, Consumer<ChannelHandlerContext> whenActive) {
        return trace -> trace.new Recorder() {
            @Override
            public void channelActive(ChannelHandlerContext context) throws Exception {
                whenActive.accept(context);
                super.channelActive(context);
            }

            @Override
            public void handlerAdded(ChannelHandlerContext context) {
                long read = observesOutput ? 0 : SHORT_MILLIS;
                context.pipeline()
                        .addFirst(new IdleStateHandler(
                                observesOutput, read, 2 * SHORT_MILLIS, 2 * read, TimeUnit.MILLISECONDS));
            }

            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                IdleStateEvent idle = (IdleStateEvent) event;
                if (idle.isFirst() && isToBeTold.test(idle.state())) {
                    trace.add("FIRST_" + idle.state() + "_STATE_EVENT");
                }
            }
        };
    }

    private static void inLoop(Scene scene, Runnable task) throws Exception {
        scene.child.eventLoop().submit(task).sync();
    }

    /** Writes in the loop: elsewhere Netty counts what is on its way to it. */
    private static void writeInLoop(Scene scene, int length) throws Exception {
        inLoop(scene, () -> scene.write(length));
    }

    /** By a mistake of the application: the buffer is released between its write and its flush. */
    private static void writesReleased(Scene scene, int length) throws Exception {
        scene.connect();
        inLoop(scene, () -> {
            ByteBuf bytes = Peers.direct(new byte[length]);
            scene.trace.of("write", scene.child.write(bytes));
            bytes.release();
            scene.child.flush();
        });
        scene.peerReads();
        scene.trace.add("open " + scene.child.isOpen());
        scene.peer.close();
        scene.trace.await("inactive");
    }

    /** The peer ends and reads all. */
    private static void ends(Scene scene) throws Exception {
        scene.peer.shutdownOutput();
        scene.trace.await("inactive");
        scene.peerReads();
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> scenario == Scenario.MAY_NOT_WRITE_AND_ENDS
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(Map.of(), Set.of());

    @ParameterizedTest
    @MethodSource("scenarios")
    void aHandlerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family, family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp, scenario.steps);
    }
}
