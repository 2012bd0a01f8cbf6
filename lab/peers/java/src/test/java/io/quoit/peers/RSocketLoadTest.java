package io.quoit.peers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** RSocket's frames between a client and a server on every transport: every message comes, in its stream's order. */
class RSocketLoadTest {
    private static final int PATIENCE_SECONDS = 60;
    private static final InetSocketAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0);

    /** The article's cases, smaller: what is checked is what they are made of. */
    static Stream<Arguments> cases() {
        return Stream.of(Transport.values())
                .flatMap(transport -> Stream.of(
                        Arguments.of(transport, new RSocketCase(2, 50, 32, 128, 32, 1, 5, false), 5_000),
                        Arguments.of(transport, new RSocketCase(5, 10, 0, 256, 20, 10, 50, false), 3_000),
                        Arguments.of(transport, new RSocketCase(3, 40, 0, 512, 10, 1, 10, false), 3_000),
                        Arguments.of(transport, new RSocketCase(1, 1, 0, 1_024, 7_000, 0, 0, false), 50_000),
                        Arguments.of(transport, new RSocketCase(1, 3, 0, 60_000, 3, 0, 0, false), 300),
                        Arguments.of(transport, new RSocketCase(4, 20, 1, 128, 1, 0, 0, true), 5_000)));
    }

    private static void await(RSocketLoad client, long messages) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (client.messages() < messages) {
            // Nothing here may allocate: a test counts that.
            client.check();
            if (System.nanoTime() > end) {
                throw new AssertionError("only " + client.messages() + " messages of " + messages + " came");
            }
            Thread.yield();
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void everyMessageComesInOrder(Transport transport, RSocketCase load, int messages) throws Exception {
        try (RSocketLoad server = RSocketLoad.serve(transport, transport.loops(), 1, LOOPBACK, report -> {});
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            await(client, messages);
            client.check();
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void bothEndsReportTheirFigures(Transport transport) throws Exception {
        BlockingQueue<String> reports = new LinkedBlockingQueue<>();
        RSocketCase load = new RSocketCase(2, 10, 0, 128, 1_000, 0, 0, false);
        try (RSocketLoad server = RSocketLoad.serve(transport, transport.loops(), 1, LOOPBACK, reports::add);
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            List<String> announced = new ArrayList<>();
            String report = client.run(transport, 0, 1.2, announced::add);
            assertTrue(announced.toString().matches("\\[window opens_ns=\\d+ lasts_ns=1200000000 in_ns=\\d+]"), announced::toString);
            // What the lab wants of a client.
            for (String figure : new String[] {
                "requests", "elapsed_seconds", "intervals", "at_seconds", "client_heap_peak_bytes", "server_gc_count"
            }) {
                assertTrue(report.contains("\"" + figure + "\":"), figure + ": " + report);
            }
            assertTrue(report.startsWith("{\"role\":\"client\",\"engine\":\"netty-" + transport.word), report);
            String served = reports.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertTrue(served != null && served.startsWith("{\"role\":\"server\""), served);
            for (String figure : new String[] {
                "messages", "messages_per_second", "cpu_seconds", "heap_peak_bytes", "gc_count", "gc_seconds",
                "direct_peak_bytes", "allocated_bytes_per_message", "compiling_seconds", "warm",
                "cpu_share", "loop_cpu_seconds", "loop_cpu_ns_per_message"
            }) {
                assertTrue(report.contains("\"" + figure + "\":"), figure + ": " + report);
                assertTrue(served.contains("\"" + figure + "\":"), figure + ": " + served);
            }
            boolean ours = transport == Transport.QUOIT_URING || transport == Transport.QUOIT_EPOLL;
            assertEquals(ours, served.contains("\"entries_per_enter\":"), served);
        }
    }

    /** The figures are read once in the warm-up, as the compiler is busy after that; a client tells its own window alone. */
    @Test
    void theWarmUpHasAWindowOfItsOwn() throws Exception {
        BlockingQueue<String> reports = new LinkedBlockingQueue<>();
        RSocketCase load = new RSocketCase(1, 1, 0, 128, 1_000, 0, 0, false);
        Transport transport = Transport.NIO;
        try (RSocketLoad server = RSocketLoad.serve(transport, transport.loops(), 1, LOOPBACK, reports::add);
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            String report = client.run(transport, 0.1, 1.5, announcement -> {});
            assertTrue(report.startsWith("{\"role\":\"client\""), report);
            // The warm-up's has no whole second.
            assertTrue(report.contains("\"at_seconds\":1,"), report);
            for (int window = 0; window < 2; window++) {
                String served = reports.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
                assertTrue(served != null && served.startsWith("{\"role\":\"server\""), served);
            }
        }
    }

    /** The harness and our transport allocate nothing per message; what is left is the virtual machine's and the test's. */
    @ParameterizedTest
    @EnumSource(value = Transport.class, names = {"QUOIT_URING", "QUOIT_EPOLL"})
    void aMessageAllocatesNothing(Transport transport) throws Exception {
        RSocketCase load = new RSocketCase(1, 4, 0, 1_024, 512, 0, 0, false);
        try (RSocketLoad server = RSocketLoad.serve(transport, transport.loops(), 1, LOOPBACK, report -> {});
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean)
                    ManagementFactory.getThreadMXBean();
            await(client, 300_000);
            long before = threads.getTotalThreadAllocatedBytes();
            long first = client.messages();
            await(client, first + 300_000);
            double each = (double) (threads.getTotalThreadAllocatedBytes() - before) / (client.messages() - first);
            assertTrue(each < 8, each + " bytes per message");
        }
    }

    /** The lab's experiments name the case last. */
    @Test
    void whatChangesACaseMayStandBeforeIt() {
        RSocketCase asked = RSocketLoad.asked(List.of("--connections", "7", "--case", "rpc-batch", "--size", "512"));
        assertEquals(RSocketCase.of("rpc-batch").with("--connections", 7).with("--size", 512), asked);
        assertEquals(7, asked.connections());
    }

    @Test
    void theProgramsOptionsAreChecked() {
        List<String> complaints = new ArrayList<>();
        for (List<String> words : List.of(
                List.<String>of(),
                List.of("--connect"),
                List.of("--connect", "nowhere"),
                List.of("--connect", "127.0.0.1:1", "--case", "rpc-none"),
                List.of("--connect", "127.0.0.1:1", "--size", "3"),
                List.of("--connect", "127.0.0.1:1", "--engine", "other"),
                List.of("--connect", "127.0.0.1:1", "--seconds", "NaN"),
                List.of("--connect", "127.0.0.1:1", "--colour", "1"))) {
            assertEquals(2, RSocketLoad.main(words, line -> {}, complaints::add), words.toString());
        }
        assertEquals(8, complaints.size());
        assertEquals(Transport.URING_RINGS, Transport.of("netty-uring-rings"));
        assertEquals(Transport.QUOIT_URING, Transport.of("netty-quoit-uring, coalesce 200 us"));
        for (String name : new String[] {"rpc-backend", "rpc-batch", "rpc-periodic", "rpc-stream", "rpc-response"}) {
            assertEquals(77, RSocketCase.of(name).with("--size", 77).size());
        }
    }

    @Test
    void theTicksOfConnectionsAreSpreadOverAPeriod() {
        RSocketCase batch = RSocketCase.of("rpc-batch").with("--connections", 5);
        assertEquals(0, batch.phaseNanos(0));
        assertEquals(8_000_000_000L, batch.phaseNanos(4));
        assertEquals(0, RSocketCase.of("rpc-stream").with("--connections", 5).phaseNanos(4));
    }

    /** Whenever its requests come: on which transport they come together makes no difference to the work. */
    @Test
    void aConnectionTicksAtItsPhase() {
        RSocketCase load = new RSocketCase(4, 2, 0, 128, 1_000, 1, 100, false);
        long millisecond = TimeUnit.MILLISECONDS.toNanos(1);
        for (int late : new int[] {0, 49, 51, 230}) {
            EmbeddedChannel server = new EmbeddedChannel(new RSocketResponder(new LongAdder(), (context, word) -> {}));
            server.freezeTime();
            // To the beginning of a period.
            long now = server.eventLoop().ticker().nanoTime();
            server.advanceTimeBy(Math.floorMod(-now, 100 * millisecond) + late * millisecond, TimeUnit.NANOSECONDS);
            EmbeddedChannel client = new EmbeddedChannel(new RSocketRequester(new LongAdder(), load, load.phaseNanos(2)));
            for (ByteBuf sent = client.readOutbound(); sent != null; sent = client.readOutbound()) {
                server.writeInbound(sent);
            }
            long next = Math.floorMod(50 - late, 100) * millisecond;
            for (int tick = 0; tick < 3; tick++) {
                server.advanceTimeBy(next - 1, TimeUnit.NANOSECONDS);
                server.runScheduledPendingTasks();
                assertEquals(0, sent(server), late + " ms late, just before tick " + tick);
                server.advanceTimeBy(1, TimeUnit.NANOSECONDS);
                server.runScheduledPendingTasks();
                assertEquals(2, sent(server), late + " ms late, tick " + tick);
                next = 100 * millisecond;
            }
            client.finishAndReleaseAll();
            server.finishAndReleaseAll();
        }
    }

    private static int sent(EmbeddedChannel channel) {
        int count = 0;
        for (ByteBuf message = channel.readOutbound(); message != null; message = channel.readOutbound()) {
            message.release();
            count++;
        }
        return count;
    }

    @Test
    void aWarmUpMayBeNone() throws Exception {
        try (RSocketLoad server = RSocketLoad.serve(Transport.NIO, Transport.NIO.loops(), 1, LOOPBACK, report -> {})) {
            List<String> lines = new ArrayList<>();
            List<String> complaints = new ArrayList<>();
            String words = "--connect 127.0.0.1:" + server.address().getPort() + " --engine netty-nio --case rpc-periodic"
                    + " --connections 2 --period 1 --warm-up 0 --seconds 0.1";
            assertEquals(0, RSocketLoad.main(List.of(words.split(" ")), lines::add, complaints::add), complaints.toString());
            assertEquals(1, lines.size());
        }
    }

    /** More than are made at once: none is lost. */
    @ParameterizedTest
    @EnumSource(Transport.class)
    void manyConnectionsAreMade(Transport transport) throws Exception {
        RSocketCase load = new RSocketCase(300, 1, 0, 128, 1_000, 1, 1_000_000, false);
        try (RSocketLoad server = RSocketLoad.serve(transport, transport.loops(), 1, LOOPBACK, report -> {});
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            await(client, 1);
            client.check();
        }
    }

    @Test
    void whatKeepsConnectionsFromBeingMadeIsTold() throws Exception {
        RSocketCase load = RSocketCase.of("rpc-backend");
        InetSocketAddress nobody;
        try (java.net.ServerSocket socket = new java.net.ServerSocket(0, 1, LOOPBACK.getAddress())) {
            nobody = (InetSocketAddress) socket.getLocalSocketAddress();
        }
        String refused = assertThrows(IOException.class, () -> RSocketLoad.connect(Transport.NIO, 1, nobody, load))
                .getMessage();
        assertEquals("connection 1 of 4 could not be made", refused);
        long limit = ((com.sun.management.UnixOperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getMaxFileDescriptorCount();
        String few = assertThrows(IOException.class, () -> RSocketLoad.checkDescriptors((int) Math.min(limit, 1 << 30)))
                .getMessage();
        assertTrue(few.contains("hard limit is " + limit) && few.contains("ulimit -Hn"), few);
    }
}
