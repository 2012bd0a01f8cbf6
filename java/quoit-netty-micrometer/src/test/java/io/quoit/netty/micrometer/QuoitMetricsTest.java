package io.quoit.netty.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.quoit.netty.Quoit;
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
            Set<String> names = new TreeSet<>();
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

    private static String meter(String figure) {
        return "quoit." + figure.replace('_', '.');
    }
}
