package io.quoit.peers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
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
        try (RSocketLoad server = RSocketLoad.serve(transport, 1, LOOPBACK, report -> {});
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
        try (RSocketLoad server = RSocketLoad.serve(transport, 1, LOOPBACK, reports::add);
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            List<String> announced = new ArrayList<>();
            String report = client.run(transport, 0, 0, 1.2, announced::add);
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
                "direct_peak_bytes", "allocated_bytes_per_message", "compiling_seconds", "warm"
            }) {
                assertTrue(report.contains("\"" + figure + "\":"), figure + ": " + report);
                assertTrue(served.contains("\"" + figure + "\":"), figure + ": " + served);
            }
            boolean ours = transport == Transport.QUOIT_URING || transport == Transport.QUOIT_EPOLL;
            assertEquals(ours, served.contains("\"entries_per_enter\":"), served);
        }
    }

    /** The harness and our transport allocate nothing a message; what is left is the virtual machine's and the test's. */
    @ParameterizedTest
    @EnumSource(value = Transport.class, names = {"QUOIT_URING", "QUOIT_EPOLL"})
    void aMessageAllocatesNothing(Transport transport) throws Exception {
        RSocketCase load = new RSocketCase(1, 4, 0, 1_024, 512, 0, 0, false);
        try (RSocketLoad server = RSocketLoad.serve(transport, 1, LOOPBACK, report -> {});
                RSocketLoad client = RSocketLoad.connect(transport, 1, server.address(), load)) {
            com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean)
                    java.lang.management.ManagementFactory.getThreadMXBean();
            await(client, 300_000);
            long before = threads.getTotalThreadAllocatedBytes();
            long first = client.messages();
            await(client, first + 300_000);
            double each = (double) (threads.getTotalThreadAllocatedBytes() - before) / (client.messages() - first);
            assertTrue(each < 8, each + " bytes a message");
        }
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
        for (String name : new String[] {"rpc-backend", "rpc-batch", "rpc-periodic", "rpc-stream", "rpc-response"}) {
            assertEquals(77, RSocketCase.of(name).with("--size", 77).size());
        }
    }

    @Test
    void aWarmUpIsInAHurryAndTheWindowIsNot() throws Exception {
        assertEquals(20, RSocketCase.of("rpc-batch").hurried().periodMillis());
        assertEquals(5, RSocketCase.of("rpc-batch").with("--period", 5).hurried().periodMillis());
        assertEquals(RSocketCase.of("rpc-stream"), RSocketCase.of("rpc-stream").hurried());
        RSocketCase never = RSocketCase.of("rpc-periodic").with("--connections", 2).with("--period", 10_000_000);
        try (RSocketLoad server = RSocketLoad.serve(Transport.NIO, 1, LOOPBACK, report -> {})) {
            try (RSocketLoad hurried = RSocketLoad.connect(Transport.NIO, 1, server.address(), never.hurried())) {
                await(hurried, 100);
            }
            List<String> lines = new ArrayList<>();
            List<String> complaints = new ArrayList<>();
            String words = "--connect 127.0.0.1:" + server.address().getPort() + " --engine netty-nio --case rpc-periodic"
                    + " --connections 2 --period 10000000 --warm-up 0 --seconds 0.1";
            assertEquals(0, RSocketLoad.main(List.of(words.split(" ")), lines::add, complaints::add), complaints.toString());
            assertEquals(1, lines.size());
            assertTrue(lines.get(0).contains("\"requests\":0,"), lines.toString());
        }
    }
}
