package io.quoit.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelOption;
import io.netty.util.concurrent.Future;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Groups that end while their channels are in one state or another: what is told, on Netty's epoll transport first, and the
 * same on this one.
 */
class ShutdownTracesTest {
    private static final int MUCH = 8 << 20;
    /** Without a quiet period Netty's own loops may leave their channels open. */
    private static final long QUIET_MILLIS = 50;

    private enum Scenario {
        NOBODY_IS_CONNECTED(scene -> {
            scene.listen();
            shutDown(scene);
            told(scene, scene.server);
        }),
        SOMEBODY_WAITS_TO_BE_ACCEPTED(scene -> {
            scene.acceptLate();
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_IS_IDLE(scene -> {
            scene.connect();
            shutDown(scene);
            scene.peerReads();
            told(scene, scene.child);
        }),
        ONE_HAS_ENDED_ITS_DIRECTION(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.ALLOW_HALF_CLOSURE, true);
            scene.connect();
            scene.peer.shutdownOutput();
            scene.trace.await("event ChannelInputShutdownReadComplete");
            shutDown(scene);
            scene.peerReads();
        }),
        THE_SERVER_HAS_ENDED_ITS_DIRECTION(scene -> {
            scene.connect();
            scene.shutdownOutput();
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_HAS_WRITTEN_AND_NOT_FLUSHED(scene -> {
            scene.connect();
            scene.trace.of("write", scene.child.write(Peers.direct(new byte[3])));
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_HAS_FLUSHED_A_LITTLE(scene -> {
            scene.connect();
            scene.child.eventLoop().submit(() -> scene.write(3)).sync();
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_HAS_FLUSHED_MUCH_THAT_NOBODY_TAKES(scene -> {
            scene.connect();
            scene.child.eventLoop().submit(() -> scene.write(MUCH)).sync();
            shutDown(scene);
            scene.awaitWrite();
        }),
        ONE_DOES_NOT_READ(scene -> {
            scene.options = bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, false);
            scene.connect();
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_CONNECTS(scene -> {
            Channel connecting = scene.connectTo(SilentListener.address()).channel();
            // It is registered, and then connects, in tasks of the loop.
            scene.group.next().submit(() -> {}).sync();
            scene.group.next().submit(() -> {}).sync();
            shutDown(scene);
            told(scene, connecting);
        }),
        ONE_CLOSES_AND_THEN_ITS_LOOP(scene -> {
            scene.connect();
            scene.serverCloses();
            shutDown(scene);
            scene.peerReads();
        }),
        ONE_REGISTERS_WHILE_IT_ENDS(scene -> {
            scene.connect();
            AtomicReference<Channel> late = new AtomicReference<>();
            // Behind the close of all channels, by which one of them has it connect.
            scene.child.closeFuture().addListener(closed -> late.set(scene.connectTo(scene.server.localAddress()).channel()));
            shutDown(scene);
            scene.peerReads();
            told(scene, late.get());
        }),
        ONE_BINDS_WHILE_IT_ENDS(scene -> {
            scene.connect();
            AtomicReference<ChannelFuture> late = new AtomicReference<>();
            ServerBootstrap bootstrap = scene.bootstrap();
            scene.child.closeFuture().addListener(closed -> late.set(
                    scene.trace.of("bind", bootstrap.bind(new InetSocketAddress("127.0.0.1", 0)))));
            shutDown(scene);
            scene.peerReads();
            told(scene, late.get().channel());
        }),
        ONE_REGISTERS_WHEN_IT_HAS_ENDED(scene -> {
            scene.connect();
            SocketAddress address = scene.server.localAddress();
            shutDown(scene);
            told(scene, scene.connectTo(address).channel());
        }),
        TASKS_COME_TOO_LATE(scene -> {
            scene.connect();
            shutDown(scene);
            try {
                scene.child.eventLoop().execute(() -> {});
                scene.trace.outcome("the task is taken");
            } catch (RejectedExecutionException refused) {
                scene.trace.outcome("the task is refused");
            }
            scene.trace.outcome("open " + scene.child.isOpen() + ", active " + scene.child.isActive());
        }),
        THE_LISTENER_ALONE_IS_CLOSED(scene -> {
            scene.connect();
            scene.trace.of("close of the listener", scene.server.close()).sync();
            scene.peerSends(3);
            scene.trace.await("data 3");
            scene.write(4).await();
            scene.trace.outcome("parent open " + scene.child.parent().isOpen());
            shutDown(scene);
            scene.peerReads();
        });

        private final Traces.Steps<Scene> steps;

        Scenario(Traces.Steps<Scene> steps) {
            this.steps = steps;
        }
    }

    private static void shutDown(Scene scene) throws InterruptedException {
        Future<?> ended =
                scene.group.shutdownGracefully(QUIET_MILLIS, TimeUnit.SECONDS.toMillis(Peers.PATIENCE_SECONDS), TimeUnit.MILLISECONDS);
        scene.trace.outcome("ended " + ended.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private static void told(Scene scene, Channel channel) {
        scene.trace.outcome("open " + channel.isOpen() + ", active " + channel.isActive() + ", registered "
                + channel.isRegistered() + ", close future " + channel.closeFuture().isDone());
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                // Nothing is copied with small limits: a flush is in flight when its channel closes, and its promise fails.
                .filter(scenario -> !UnderTest.SMALL || scenario != Scenario.ONE_HAS_FLUSHED_A_LITTLE)
                .flatMap(scenario -> scenario == Scenario.ONE_CONNECTS
                                || scenario == Scenario.ONE_BINDS_WHILE_IT_ENDS
                                || scenario == Scenario.SOMEBODY_WAITS_TO_BE_ACCEPTED
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(Map.of(), Set.of());

    @ParameterizedTest
    @MethodSource("scenarios")
    void aGroupEndsAsOnNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family, family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp, scenario.steps);
    }
}
