package io.quoit.netty.micrometer;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitHistogram;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.ToLongFunction;

/**
 * The figures of Quoit's loops as Micrometer's meters: {@code quoit.enters}, {@code quoit.submissions} and so on, with the
 * tags {@code loop} and {@code engine}; of histograms, which {@code docs/netty.md} lists, {@code quoit.write.bytes.count} and
 * {@code .sum}, and the gauges {@code quoit.write.bytes} with the tag {@code phi} 0.5, 0.99 and 1: percentiles since the loop
 * was made, true to a power of two. Bind it when the event loop groups run: it registers the loops that there are. A
 * loop that has ended keeps the value 0 in gauges, and its last value in counters as the registry does.
 */
public final class QuoitMetrics implements MeterBinder {
    private static final String PREFIX = "quoit.";
    /** Meters are read one by one, and all come from one snapshot. */
    private static final long FRESH_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private static final double[] PERCENTILES = {0.5, 0.99, 1};

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
            for (QuoitHistogram histogram : loop.histograms()) {
                bind(registry, tags, loop.loop(), histogram);
            }
        }
    }

    private void bind(MeterRegistry registry, Tags tags, int loop, QuoitHistogram histogram) {
        String name = PREFIX + histogram.name().replace('_', '.');
        for (double phi : PERCENTILES) {
            Gauge.builder(name, this, binder -> binder.of(loop, histogram.name(), shape -> shape.percentile(phi)))
                    .description(histogram.about())
                    .tags(tags.and("phi", phi == 1 ? "1" : String.valueOf(phi)))
                    .strongReference(true)
                    .register(registry);
        }
        FunctionCounter.builder(
                        name + ".count", registry, any -> of(loop, histogram.name(), QuoitHistogram::count))
                .description(histogram.about())
                .tags(tags)
                .register(registry);
        FunctionCounter.builder(name + ".sum", registry, any -> of(loop, histogram.name(), QuoitHistogram::sum))
                .description(histogram.about())
                .tags(tags)
                .register(registry);
    }

    private double of(int loop, String name, ToLongFunction<QuoitHistogram> figure) {
        QuoitLoopSnapshot snapshot = snapshot(loop);
        return snapshot == null ? 0 : figure.applyAsLong(snapshot.histogram(name));
    }

    private double value(int loop, String name) {
        QuoitLoopSnapshot snapshot = snapshot(loop);
        return snapshot == null ? 0 : snapshot.value(name);
    }

    /** A snapshot of the loop; null if it has ended. */
    private synchronized QuoitLoopSnapshot snapshot(int loop) {
        long now = System.nanoTime();
        if (loops.isEmpty() || now - taken > FRESH_NANOS) {
            loops = Quoit.loops();
            taken = now;
        }
        for (QuoitLoopSnapshot snapshot : loops) {
            if (snapshot.loop() == loop) {
                return snapshot;
            }
        }
        return null;
    }
}
