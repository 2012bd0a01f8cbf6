package io.quoit.netty.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitHistogram;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitLoopSnapshot;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class QuoitMetricsTest {
    private static final int SLOTS = 300;

    @Test
    void everyLoopHasItsMeters() throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(
                2,
                QuoitIoHandler.newFactory(QuoitIoHandlerConfig.defaults().withReceivePool(SLOTS, 4096)));
        try {
            for (var loop : group) {
                loop.submit(() -> {}).sync();
            }
            SimpleMeterRegistry registry = new SimpleMeterRegistry();
            new QuoitMetrics().bindTo(registry);
            assertEquals(2, registry.find("quoit.turns").functionCounters().size());
            assertEquals(2, registry.find("quoit.pool.slots").gauges().size());
            // A loop publishes its figures when it goes to sleep, which it does after its first turns.
            assertTrue(registry.find("quoit.turns").functionCounters().stream().allMatch(counter -> counter.count() >= 1));
            assertEquals(2 * 3, registry.find("quoit.turn.events").tagKeys("phi").gauges().size());
            registry.find("quoit.turn.events.count").functionCounters().forEach(counter -> assertTrue(counter.count() >= 1));
            for (String shape : new String[] {"quoit.enter.submissions", "quoit.enter.completions"}) {
                assertEquals(2 * 3, registry.find(shape).tagKeys("phi").gauges().size());
                assertEquals(2, registry.find(shape + ".count").functionCounters().size());
                assertEquals(2, registry.find(shape + ".sum").functionCounters().size());
            }
            assertEquals(2, registry.find("quoit.flush.nanos.sum").functionCounters().size());
            // What each loop has, and nothing besides.
            Set<String> names = new TreeSet<>(Set.of("quoit.loops"));
            QuoitLoopSnapshot loop = Quoit.loops().get(0);
            loop.metrics().forEach(metric -> names.add(meter(metric.name())));
            for (QuoitHistogram histogram : loop.histograms()) {
                String name = meter(histogram.name());
                names.addAll(List.of(name, name + ".count", name + ".sum"));
            }
            Set<String> bound = new TreeSet<>();
            registry.forEachMeter(meter -> bound.add(meter.getId().getName()));
            assertEquals(names, bound);
            registry.find("quoit.pool.slots").gauges().forEach(gauge -> assertEquals(SLOTS, gauge.value()));
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** What a loop has counted is not lost with it, and is not that of a loop on another engine that has its number next. */
    @Test
    void aLoopThatHasEndedKeepsWhatItHasCounted() throws Exception {
        SimpleMeterRegistry registry = new SimpleMeterRegistry();
        EventLoopGroup ended = group(QuoitEngine.EPOLL);
        new QuoitMetrics().bindTo(registry);
        int loop = Quoit.loops().get(0).loop();
        double turns = registry.get("quoit.turns").functionCounter().count();
        double events = registry.get("quoit.turn.events.count").functionCounter().count();
        assertTrue(turns >= 1 && events >= 1, turns + " turns, events of " + events);
        assertTrue(registry.get("quoit.pool.slots").gauge().value() > 0);
        ended.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        awaitGaugeOfNothing(registry);
        assertTrue(registry.get("quoit.turns").functionCounter().count() >= turns);
        assertTrue(registry.get("quoit.turn.events.count").functionCounter().count() >= events);
        if (!Quoit.doctor().uringUsable()) {
            return;
        }
        double last = registry.get("quoit.turns").functionCounter().count();
        EventLoopGroup next = group(QuoitEngine.URING);
        try {
            assertEquals(loop, Quoit.loops().get(0).loop());
            assertEquals(last, registry.get("quoit.turns").functionCounter().count());
            new QuoitMetrics().bindTo(registry);
            assertEquals(
                    0, registry.get("quoit.pool.slots").tag("engine", "epoll").gauge().value());
            assertTrue(registry.get("quoit.pool.slots").tag("engine", "uring").gauge().value() > 0);
        } finally {
            next.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** An event loop begins with its first task: most of a server's with its first clients, and some with groups of later. */
    @Test
    void loopsThatBeginLaterHaveTheirMetersToo() throws Exception {
        SimpleMeterRegistry registry = new SimpleMeterRegistry();
        new QuoitMetrics().bindTo(registry);
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(2, QuoitIoHandler.newFactory());
        try {
            for (int loops = 1; loops <= 2; loops++) {
                group.next().submit(() -> {}).sync();
                awaitLoops(registry, loops);
                assertEquals(loops, registry.find("quoit.turns").functionCounters().size());
                assertEquals(3 * loops, registry.find("quoit.turn.events").tagKeys("phi").gauges().size());
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
        awaitLoops(registry, 0);
        assertEquals(2, registry.find("quoit.turns").functionCounters().size());
    }

    private static void awaitLoops(SimpleMeterRegistry registry, int loops) {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (registry.get("quoit.loops").gauge().value() != loops) {
            assertTrue(System.nanoTime() < giveUp, "the number of loops");
            Thread.onSpinWait();
        }
    }

    private static EventLoopGroup group(QuoitEngine engine) throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(
                1, QuoitIoHandler.newFactory(QuoitIoHandlerConfig.defaults().withEngine(engine)));
        group.next().submit(() -> {}).sync();
        return group;
    }

    /** Figures that were read are fresh for a while. */
    private static void awaitGaugeOfNothing(SimpleMeterRegistry registry) {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (registry.get("quoit.pool.slots").gauge().value() != 0) {
            assertTrue(System.nanoTime() < giveUp, "the gauge of a loop that has ended");
            Thread.onSpinWait();
        }
    }

    private static String meter(String figure) {
        return "quoit." + figure.replace('_', '.');
    }
}
