package io.quoit.netty;

import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.DuplexChannel;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Each side at its own pace: reads that come late or are withheld, writers and readers that are slow, and both that end at
 * once: on Netty's epoll transport first, and the same on this one.
 */
class PaceTracesTest {
    private static final int PIECES = 20;
    /** More than the kernel has room for between the two. */
    private static final int MUCH = 2 << 20;

    private static final int SIP = 10_000;

    private enum Scenario {
        READS_WITHOUT_AUTO_READ(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            for (int length = 3; length < 6; length++) {
                scene.peerSends(length);
                scene.turn();
                scene.trace.add("reads");
                scene.child.read();
                scene.trace.await("data " + length);
            }
            scene.serverCloses();
        }),
        FIRST_READ_IS_WITHHELD(scene -> {
            AtomicBoolean withheld = withholding(scene);
            scene.connect();
            scene.peerSends(3);
            scene.turn();
            withheld.set(false);
            scene.trace.add("reads");
            scene.child.read();
            scene.trace.await("data 3");
            scene.serverCloses();
            scene.peerReads();
        }),
        LATER_READS_ARE_WITHHELD(scene -> {
            AtomicBoolean withheld = withholding(scene);
            withheld.set(false);
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("data 3");
            withheld.set(true);
            for (int length = 4; length < 7; length++) {
                // What is told between them keeps them apart.
                scene.trace.add("more");
                scene.peerSends(length);
                scene.trace.await("data " + length);
            }
            scene.serverCloses();
            scene.peerReads();
        }),
        READ_IS_WITHHELD_AS_AUTO_READ_COMES_BACK(scene -> {
            AtomicBoolean withheld = withholding(scene);
            withheld.set(false);
            scene.connect();
            scene.peerSends(3);
            scene.trace.await("data 3");
            inLoop(scene, () -> scene.child.config().setAutoRead(false));
            withheld.set(true);
            inLoop(scene, () -> scene.child.config().setAutoRead(true));
            scene.peerSends(4);
            scene.turn();
            withheld.set(false);
            scene.trace.add("reads");
            scene.child.read();
            scene.trace.await("data 4");
            scene.serverCloses();
            scene.peerReads();
        }),
        READ_IS_WITHHELD_AS_AUTO_READ_COMES_FIRST(scene -> {
            AtomicBoolean withheld = withholding(scene);
            withheld.set(false);
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.child.read();
            scene.trace.await("data 3");
            // That read has ended.
            inLoop(scene, () -> {});
            scene.turn();
            withheld.set(true);
            inLoop(scene, () -> scene.child.config().setAutoRead(true));
            scene.peerSends(4);
            scene.turn();
            withheld.set(false);
            scene.trace.add("reads");
            scene.child.read();
            scene.trace.await("data 4");
            scene.serverCloses();
            scene.peerReads();
        }),
        PEER_WRITES_SLOWLY(scene -> {
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            for (int piece = 1; piece <= PIECES; piece++) {
                scene.peerSends(1);
                scene.trace.await("read complete", piece);
            }
            scene.peer.shutdownOutput();
            scene.trace.await("inactive");
            scene.peerReads();
        }),
        SERVER_WRITES_SLOWLY(scene -> {
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            for (int piece = 1; piece <= PIECES; piece++) {
                scene.write(piece).sync();
                scene.peerReads(piece);
            }
            scene.serverCloses();
            scene.peerReads();
        }),
        PEER_READS_SLOWLY(scene -> {
            scene.recorder = trace -> trace.new Closely();
            scene.connect();
            inLoop(scene, () -> {
                for (int piece = 0; piece < 4; piece++) {
                    scene.write(MUCH / 4);
                }
            });
            scene.trace.outcome("writable " + scene.child.isWritable());
            for (int read = 0; read < MUCH; read += SIP) {
                scene.peerReads(Math.min(SIP, MUCH - read));
            }
            scene.awaitWrite();
            scene.trace.await("writable true");
            scene.serverCloses();
            scene.peerReads();
        }),
        PEER_ENDS_AND_READS_WHAT_IS_QUEUED(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            inLoop(scene, () -> scene.write(MUCH));
            scene.peer.shutdownOutput();
            scene.trace.await("event ChannelInputShutdownReadComplete");
            for (int read = 0; read < MUCH; read += SIP) {
                scene.peerReads(Math.min(SIP, MUCH - read));
            }
            scene.awaitWrite();
            scene.serverCloses();
            scene.peerReads();
        }),
        PEER_ENDS_WHILE_MUCH_IS_QUEUED(scene -> {
            scene.connect();
            inLoop(scene, () -> scene.write(MUCH));
            scene.peer.shutdownOutput();
            scene.trace.await("unregistered");
            scene.awaitWrite();
        }),
        PEER_RESETS_WHILE_WHAT_IT_SENT_WAITS_TO_BE_READ(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            scene.peerSends(3);
            scene.child.read();
            scene.trace.await("data 3");
            scene.peerSends(5);
            scene.turn();
            scene.peerResets();
            scene.awaitReset();
            inLoop(scene, () -> {
                scene.write(7);
                scene.trace.add("reads");
                scene.child.read();
            });
            scene.trace.await("unregistered");
            scene.awaitWrite();
        }),
        BOTH_CLOSE_AT_ONCE(scene -> {
            scene.connect();
            // The loop cannot learn of the peer's end before its own.
            inLoop(scene, () -> {
                end(scene);
                scene.trace.of("close", scene.child.close());
            });
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        BOTH_END_AT_ONCE(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            inLoop(scene, () -> {
                end(scene);
                scene.trace.of("shutdownOutput", ((DuplexChannel) scene.child).shutdownOutput());
            });
            scene.trace.await("event ChannelInputShutdownReadComplete");
            scene.peerReads();
            scene.serverCloses();
        }),
        BOTH_WRITE_AND_END_AT_ONCE(scene -> {
            scene.connect();
            scene.turn();
            inLoop(scene, () -> {
                send(scene, 3);
                end(scene);
                scene.write(5);
                scene.trace.of("shutdownOutput", ((DuplexChannel) scene.child).shutdownOutput());
            });
            scene.trace.await("unregistered");
            scene.peerReads();
        }),
        SERVER_WRITES_AND_ENDS_AS_IT_BECOMES_ACTIVE(scene -> {
            scene.recorder = trace -> trace.new Recorder() {
                @Override
                public void channelActive(ChannelHandlerContext context) throws Exception {
                    scene.write(context.channel(), 5);
                    trace.of("shutdownOutput", ((DuplexChannel) context.channel()).shutdownOutput());
                    super.channelActive(context);
                }
            };
            scene.connect();
            scene.peerReads();
            scene.peer.shutdownOutput();
            scene.trace.await("unregistered");
        });

        private final Traces.Steps<Scene> steps;

        Scenario(Traces.Steps<Scene> steps) {
            this.steps = steps;
        }
    }

    /** A handler that lets no read through while it is told so. */
    private static AtomicBoolean withholding(Scene scene) {
        AtomicBoolean withheld = new AtomicBoolean(true);
        scene.recorder = trace -> trace.new Recorder() {
            @Override
            public void handlerAdded(ChannelHandlerContext context) {
                context.pipeline().addFirst(new ChannelDuplexHandler() {
                    @Override
                    public void read(ChannelHandlerContext context) throws Exception {
                        if (!withheld.get()) {
                            super.read(context);
                        }
                    }
                });
            }
        };
        return withheld;
    }

    private static void inLoop(Scene scene, Runnable task) throws Exception {
        scene.child.eventLoop().submit(task).sync();
    }

    private static void end(Scene scene) {
        try {
            scene.peer.shutdownOutput();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static void send(Scene scene, int length) {
        try {
            scene.peerSends(length);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                // With nothing copied, that write is still in flight at the end.
                .filter(scenario -> !UnderTest.SMALL || scenario != Scenario.BOTH_WRITE_AND_END_AT_ONCE)
                .flatMap(scenario -> scenario == Scenario.PEER_RESETS_WHILE_WHAT_IT_SENT_WAITS_TO_BE_READ
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    private static final List<String> ENDED_EARLY = List.of(
            "event ChannelOutputShutdownEvent",
            "active",
            "inactive",
            "unregistered",
            "write of 5: ChannelOutputShutdownException",
            "shutdownOutput: done",
            "the peer reads 5 and its end");

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(
            Map.of(
                    "PEER_RESETS_WHILE_WHAT_IT_SENT_WAITS_TO_BE_READ on TCP",
                    List.of(
                            "active", "data 3", "reads", "data 5", "inactive", "unregistered",
                            "write of 7: IOException (Connection reset)"),
                    "SERVER_WRITES_AND_ENDS_AS_IT_BECOMES_ACTIVE on TCP", ENDED_EARLY,
                    "SERVER_WRITES_AND_ENDS_AS_IT_BECOMES_ACTIVE on UNIX", ENDED_EARLY),
            Set.of());

    @ParameterizedTest
    @MethodSource("scenarios")
    void aHandlerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family, family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp, scenario.steps);
    }
}
