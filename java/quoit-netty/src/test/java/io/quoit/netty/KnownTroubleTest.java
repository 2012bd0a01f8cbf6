package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.IntPredicate;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** What users of Netty's io_uring transport have met, as far as no other test here has it; docs/netty.md lists all. */
class KnownTroubleTest {
    private static final int BURST = 300;
    private static final int LOOPS = 16;

    /** netty/netty 15502: connections that come at once, more than the ring has room for completions. */
    @Test
    void aBurstOfConnectionsLongerThanTheQueuesIsAcceptedWhole() throws Exception {
        QuoitIoHandlerConfig config = UnderTest.config().withQueues(16, 64);
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        List<Socket> peers = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(1);
        try {
            Channel server = new ServerBootstrap()
                    .group(group)
                    .channel(QuoitServerSocketChannel.class)
                    .option(ChannelOption.SO_BACKLOG, BURST)
                    .childHandler(Peers.each(Peers.Echo::new))
                    .bind("127.0.0.1", 0)
                    .sync()
                    .channel();
            group.execute(() -> {
                try {
                    all.await();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            });
            while (peers.size() < BURST) {
                Socket peer = Peers.connect(server);
                peers.add(peer);
                peer.getOutputStream().write(peers.size());
            }
            all.countDown();
            for (int peer = 0; peer < BURST; peer++) {
                assertEquals((peer + 1) & 0xff, peers.get(peer).getInputStream().read());
            }
        } finally {
            all.countDown();
            for (Socket peer : peers) {
                peer.close();
            }
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** netty/netty 16655: loops that wait for the network were taken for threads that wait for a disk. */
    @Test
    void loopsThatSleepDoNotWaitForStorage() throws Exception {
        Assumptions.assumeTrue(
                UnderTest.ENGINE == QuoitEngine.URING
                        && Quoit.doctor().features().stream()
                                .anyMatch(feature -> feature.name().equals("no-iowait") && feature.usable()),
                "this kernel cannot tell them apart");
        // The kernel's own figure shows what is meant: without the feature all of them wait for storage.
        awaitWaitingForStorage("iowait-off", UnderTest.config().withoutFeatures("no-iowait"), threads -> threads >= LOOPS);
        awaitWaitingForStorage("iowait-on", UnderTest.config(), threads -> threads < LOOPS);
    }

    /**
     * Waits until so many threads of the machine wait for storage while so many loops sleep. The kernel counts those of all
     * processes together, and others may come and go: as long as the loops are among them, there are never fewer than loops.
     */
    private static void awaitWaitingForStorage(String name, QuoitIoHandlerConfig config, IntPredicate expected)
            throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(
                LOOPS, new DefaultThreadFactory(name), QuoitIoHandler.newFactory(config));
        try {
            for (var loop : group) {
                ((EventLoop) loop).submit(() -> {}).sync();
            }
            int seen = -1;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
            while (System.nanoTime() < end) {
                List<String> before = sleeping(name);
                int waiting = Files.readAllLines(Path.of("/proc/stat")).stream()
                        .filter(line -> line.startsWith("procs_blocked "))
                        .mapToInt(line -> Integer.parseInt(line.split(" ")[1]))
                        .sum();
                // Nobody has woken while that was read.
                if (before.size() == LOOPS && before.equals(sleeping(name))) {
                    seen = waiting;
                    if (expected.test(waiting)) {
                        return;
                    }
                }
            }
            throw new AssertionError(seen < 0 ? "the loops never slept" : seen + " threads wait for storage");
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** Of each thread of that name that sleeps, how often it did. */
    private static List<String> sleeping(String name) throws IOException {
        List<String> found = new ArrayList<>();
        try (Stream<Path> threads = Files.list(Path.of("/proc/self/task"))) {
            for (Path thread : threads.sorted().toList()) {
                List<String> lines;
                try {
                    lines = Files.readAllLines(thread.resolve("status"));
                } catch (IOException ended) {
                    // Threads of other tests come and go.
                    continue;
                }
                boolean asleep = lines.contains("State:\tS (sleeping)") && lines.get(0).contains(name);
                if (asleep) {
                    lines.stream().filter(line -> line.startsWith("voluntary")).forEach(line -> found.add(thread + line));
                }
            }
        }
        return found;
    }
}
