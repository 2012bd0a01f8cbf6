package io.quoit.peers;

import io.netty.util.internal.PlatformDependent;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/**
 * What this virtual machine does during a window: messages of each second, processor time, the heap's peak (the sum of the
 * pools' peaks), collections, bytes allocated on the heap by all threads, direct memory, time of compiling.
 */
final class RSocketFigures {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long SECOND_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** The share of a window that compiling may take: less than that, and the virtual machine is warm. */
    private static final double MOST_COMPILING = 0.05;

    private final LongAdder messages;
    private final List<Long> eachSecond = new ArrayList<>();
    private Thread sampler;
    private volatile boolean ended;

    private long started;
    private long firstMessages;
    private long firstCpu;
    private long firstCollections;
    private long firstCollectionMillis;
    private long firstAllocated;
    private long firstCompiling;
    private long directPeak;
    private long[] firstQuoit;

    /** Begins a window. */
    RSocketFigures(LongAdder messages) {
        this.messages = messages;
        for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
            pool.resetPeakUsage();
        }
        firstMessages = messages.sum();
        firstCpu = SYSTEM.getProcessCpuTime();
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

    /** Time of compiling so far. */
    static long compilingMillis() {
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

    /** Ends the window, and answers its figures as members of a JSON object. */
    String end() throws InterruptedException {
        ended = true;
        sampler.interrupt();
        sampler.join();
        double seconds = (System.nanoTime() - started) / 1e9;
        long sum = messages.sum() - firstMessages;
        long allocated = THREADS.getTotalThreadAllocatedBytes() - firstAllocated;
        double compiling = (compilingMillis() - firstCompiling) / 1e3;
        StringBuilder json = new StringBuilder();
        json.append(String.format(
                Locale.ROOT,
                "\"seconds\":%.3f,\"messages\":%d,\"messages_per_second\":%s,\"cpu_seconds\":%.3f,"
                        + "\"heap_peak_bytes\":%d,\"gc_count\":%d,\"gc_seconds\":%.3f,\"direct_peak_bytes\":%d,"
                        + "\"allocated_bytes\":%d,\"allocated_bytes_per_message\":%.3f,\"compiling_seconds\":%.3f,"
                        + "\"warm\":%b",
                seconds,
                sum,
                eachSecond.toString().replace(" ", ""),
                (SYSTEM.getProcessCpuTime() - firstCpu) / 1e9,
                heapPeak(),
                collections() - firstCollections,
                (collectionMillis() - firstCollectionMillis) / 1e3,
                Math.max(directPeak, direct()),
                allocated,
                sum == 0 ? 0.0 : (double) allocated / sum,
                compiling,
                compiling < MOST_COMPILING * seconds));
        long[] last = quoit();
        if (last[1] > firstQuoit[1]) {
            json.append(String.format(
                    Locale.ROOT,
                    ",\"entries_per_enter\":%.3f,\"pieces_per_send\":%.3f",
                    (double) (last[0] - firstQuoit[0]) / (last[1] - firstQuoit[1]),
                    (double) (last[2] - firstQuoit[2]) / Math.max(1, last[3] - firstQuoit[3])));
        }
        return json.toString();
    }

    /**
     * Waits until the virtual machine is warm: three seconds in a row with hardly any compiling.
     *
     * @return the seconds that took, negative if it was not warm within {@code most}
     */
    static long warmUp(int most) throws InterruptedException {
        int calm = 0;
        long before = compilingMillis();
        for (int second = 1; second <= most; second++) {
            Thread.sleep(1_000);
            long now = compilingMillis();
            calm = now - before < MOST_COMPILING * 1_000 ? calm + 1 : 0;
            before = now;
            if (calm == 3) {
                return second;
            }
        }
        return -1;
    }
}
