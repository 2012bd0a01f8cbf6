package io.quoit.peers;

import io.netty.util.internal.PlatformDependent;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;

/**
 * What this virtual machine does during a window: messages of each second, processor time of the process and of its event
 * loops alone, the heap's peak (the sum of the pools' peaks; garbage of before should have been collected), collections,
 * bytes allocated on the heap by all threads, direct memory, time of compiling.
 */
final class RSocketFigures {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long SECOND_NANOS = TimeUnit.SECONDS.toNanos(1);

    /**
     * The share of the process's processor time that threads other than the event loops may have, which compile above all:
     * with less than that the virtual machine is warm. The time of compiling by the clock says less, as the compiler waits for
     * the processor that it shares with the loop.
     */
    private static final double MOST_OTHERS = 0.05;

    private final LongAdder messages;
    private final List<Long> loops;
    private final List<Long> eachSecond = new ArrayList<>();
    private Thread sampler;
    private volatile boolean ended;

    private long started;
    private long firstMessages;
    private long firstCpu;
    private long firstLoopCpu;
    private long firstCollections;
    private long firstCollectionMillis;
    private long firstAllocated;
    private long firstCompiling;
    private long directPeak;
    private long[] firstQuoit;

    /**
     * Begins a window.
     *
     * @param loops the threads of the event loops
     */
    RSocketFigures(LongAdder messages, List<Long> loops) {
        this.messages = messages;
        this.loops = loops;
        for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
            pool.resetPeakUsage();
        }
        firstMessages = messages.sum();
        firstCpu = SYSTEM.getProcessCpuTime();
        firstLoopCpu = loopCpu();
        firstCollections = collections();
        firstCollectionMillis = collectionMillis();
        firstAllocated = THREADS.getTotalThreadAllocatedBytes();
        firstCompiling = compilingMillis();
        firstQuoit = quoit();
        directPeak = direct();
        started = System.nanoTime();
        sampler = Thread.ofPlatform().daemon().name("figures").start(this::sample);
    }

    private void sample() {
        long at = started;
        long before = firstMessages;
        while (!ended) {
            at += SECOND_NANOS;
            java.util.concurrent.locks.LockSupport.parkNanos(at - System.nanoTime());
            if (ended) {
                return;
            }
            long now = messages.sum();
            eachSecond.add(now - before);
            before = now;
            directPeak = Math.max(directPeak, direct());
        }
    }

    /**
     * Nanoseconds of processor time of the event loops, and of the threads with which the kernel does the work of their
     * rings that would have blocked: what the transport and its handlers cost without the compiler and the collector.
     */
    private long loopCpu() {
        return loops.stream().mapToLong(THREADS::getThreadCpuTime).sum() + workers();
    }

    /** Those threads of the kernel belong to the process, and no list of Java's has them. */
    private static long workers() {
        long sum = 0;
        try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                sum += worker(task);
            }
        } catch (IOException none) {
            return 0;
        }
        return sum;
    }

    private static long worker(Path task) {
        try {
            if (!Files.readString(task.resolve("comm")).startsWith("iou-")) {
                return 0;
            }
            String figures = Files.readString(task.resolve("schedstat"));
            return Long.parseLong(figures.substring(0, figures.indexOf(' ')));
        } catch (IOException ended) {
            return 0;
        }
    }

    /** Time of compiling so far, by the clock. */
    private static long compilingMillis() {
        return ManagementFactory.getCompilationMXBean().getTotalCompilationTime();
    }

    private static long collections() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
                .mapToLong(GarbageCollectorMXBean::getCollectionCount)
                .sum();
    }

    private static long collectionMillis() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
                .mapToLong(GarbageCollectorMXBean::getCollectionTime)
                .sum();
    }

    private static long heapPeak() {
        return ManagementFactory.getMemoryPoolMXBeans().stream()
                .filter(pool -> pool.getType() == MemoryType.HEAP)
                .mapToLong(pool -> pool.getPeakUsage().getUsed())
                .sum();
    }

    /** Direct memory: what the JDK counts, and what Netty takes past that. */
    private static long direct() {
        long counted = ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                .filter(pool -> pool.getName().equals("direct"))
                .mapToLong(BufferPoolMXBean::getMemoryUsed)
                .sum();
        return counted + Math.max(0, PlatformDependent.usedDirectMemory());
    }

    private static final List<String> QUOIT = List.of("submissions", "enters", "send_pieces", "sends");

    /** The sums of those figures over Quoit's loops; all 0 on other transports. */
    private static long[] quoit() {
        long[] sums = new long[QUOIT.size()];
        for (QuoitLoopSnapshot loop : Quoit.loops()) {
            for (QuoitMetric metric : loop.metrics()) {
                int place = QUOIT.indexOf(metric.name());
                if (place >= 0) {
                    sums[place] += metric.value();
                }
            }
        }
        return sums;
    }

    /**
     * What a window came to.
     *
     * @param seconds how long it was
     * @param messages that were counted in it
     * @param eachSecond the same, of each whole second
     * @param others by name, with the unit in the name; {@code warm} is 1 if the virtual machine was
     */
    record Window(double seconds, long messages, List<Long> eachSecond, Map<String, Number> others) {
        /** As members of a JSON object. */
        String json() {
            return String.format(
                            Locale.ROOT,
                            "\"seconds\":%.3f,\"messages\":%d,\"messages_per_second\":%s",
                            seconds,
                            messages,
                            eachSecond.toString().replace(" ", ""))
                    + "," + members("", others);
        }

        /** Names and numbers as members of a JSON object. */
        static String members(String prefix, Map<String, Number> numbers) {
            return numbers.entrySet().stream()
                    .map(entry -> "\"" + prefix + entry.getKey() + "\":" + entry.getValue())
                    .collect(Collectors.joining(","));
        }
    }

    /** Ends the window. */
    Window end() throws InterruptedException {
        ended = true;
        sampler.interrupt();
        sampler.join();
        double seconds = (System.nanoTime() - started) / 1e9;
        long sum = messages.sum() - firstMessages;
        long allocated = THREADS.getTotalThreadAllocatedBytes() - firstAllocated;
        double compiling = (compilingMillis() - firstCompiling) / 1e3;
        Map<String, Number> others = new LinkedHashMap<>();
        double cpu = (SYSTEM.getProcessCpuTime() - firstCpu) / 1e9;
        double loopCpu = (loopCpu() - firstLoopCpu) / 1e9;
        others.put("cpu_seconds", rounded(cpu));
        others.put("cpu_share", rounded(cpu / seconds));
        others.put("loop_cpu_seconds", rounded(loopCpu));
        others.put("loop_cpu_ns_per_message", rounded(1e9 * loopCpu / Math.max(1, sum)));
        others.put("heap_peak_bytes", heapPeak());
        others.put("gc_count", collections() - firstCollections);
        others.put("gc_seconds", rounded((collectionMillis() - firstCollectionMillis) / 1e3));
        others.put("direct_peak_bytes", Math.max(directPeak, direct()));
        others.put("allocated_bytes", allocated);
        others.put("allocated_bytes_per_message", rounded((double) allocated / Math.max(1, sum)));
        others.put("compiling_seconds", rounded(compiling));
        others.put("warm", cpu - loopCpu < MOST_OTHERS * cpu ? 1 : 0);
        long[] last = quoit();
        if (last[1] > firstQuoit[1]) {
            others.put("entries_per_enter", rounded((double) (last[0] - firstQuoit[0]) / (last[1] - firstQuoit[1])));
            others.put(
                    "pieces_per_send",
                    rounded((double) (last[2] - firstQuoit[2]) / Math.max(1, last[3] - firstQuoit[3])));
        }
        return new Window(seconds, sum, List.copyOf(eachSecond), others);
    }

    /** To a thousandth. */
    private static double rounded(double number) {
        return Math.round(number * 1e3) / 1e3;
    }
}
