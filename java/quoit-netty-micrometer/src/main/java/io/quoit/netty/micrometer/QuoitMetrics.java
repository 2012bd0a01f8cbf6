package io.quoit.netty.micrometer;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The figures of Quoit's loops as Micrometer's meters: {@code quoit.enters}, {@code quoit.submissions} and so on, with the
 * tags {@code loop} and {@code engine}. Bind it when the event loop groups run: it registers the loops that there are. A
 * loop that has ended keeps the value 0 in gauges, and its last value in counters as the registry does.
 */
public final class QuoitMetrics implements MeterBinder {
    private static final String PREFIX = "quoit.";
    /** Meters are read one by one, and all come from one snapshot. */
    private static final long FRESH_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private List<QuoitLoopSnapshot> loops = List.of();
    private long taken;

    /** A binder of all loops of this process. */
    public QuoitMetrics() {}

    @Override
    public void bindTo(MeterRegistry registry) {
        for (QuoitLoopSnapshot loop : Quoit.loops()) {
            Tags tags = Tags.of(
                    "loop", String.valueOf(loop.loop()), "engine", loop.engine().name().toLowerCase(java.util.Locale.ROOT));
            for (QuoitMetric metric : loop.metrics()) {
                String name = PREFIX + metric.name().replace('_', '.');
                if (metric.gauge()) {
                    Gauge.builder(name, this, binder -> binder.value(loop.loop(), metric.name()))
                            .description(metric.about())
                            .tags(tags)
                            .strongReference(true)
                            .register(registry);
                } else {
                    // A function counter refers to its object weakly; the function itself keeps the binder.
                    FunctionCounter.builder(name, registry, any -> value(loop.loop(), metric.name()))
                            .description(metric.about())
                            .tags(tags)
                            .register(registry);
                }
            }
        }
    }

    private synchronized double value(int loop, String name) {
        long now = System.nanoTime();
        if (loops.isEmpty() || now - taken > FRESH_NANOS) {
            loops = Quoit.loops();
            taken = now;
        }
        for (QuoitLoopSnapshot snapshot : loops) {
            if (snapshot.loop() == loop) {
                return snapshot.value(name);
            }
        }
        return 0;
    }
}
