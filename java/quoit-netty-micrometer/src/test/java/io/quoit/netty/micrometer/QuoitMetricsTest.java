package io.quoit.netty.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.quoit.netty.QuoitIoHandler;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class QuoitMetricsTest {
    @Test
    void everyLoopHasItsMeters() throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(2, QuoitIoHandler.newFactory());
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
            registry.find("quoit.pool.slots").gauges().forEach(gauge -> assertEquals(1024, gauge.value()));
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
