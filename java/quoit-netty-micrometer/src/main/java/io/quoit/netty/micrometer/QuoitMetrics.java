package io.quoit.netty.micrometer;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitHistogram;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.ToLongFunction;

/**
 * The figures of Quoit's loops as Micrometer's meters: {@code quoit.enters}, {@code quoit.submissions} and so on, with the
 * tags {@code loop} and {@code engine}; of histograms, which {@code docs/netty.md} lists, {@code quoit.write.bytes.count} and
 * {@code .sum}, and the gauges {@code quoit.write.bytes} with the tag {@code phi} 0.5, 0.99 and 1: percentiles since the loop
 * was made, true to a power of two. {@code quoit.loops} is the number of loops that run. Bind it at any time: an event loop
 * has meters once it has begun, which it does with its first task, and any of these meters has been read since. A loop that
 * has ended has the value 0 in gauges, and in counters the last one that was read, until another loop on the same engine is
 * given its number.
 */
public final class QuoitMetrics implements MeterBinder {
    private static final String PREFIX = "quoit.";
    /** Meters are read one by one, and all come from one snapshot. */
    private static final long FRESH_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private static final double[] PERCENTILES = {0.5, 0.99, 1};

    /** A number is given to another loop when its own has ended. */
    private record Key(int loop, QuoitEngine engine) {}

    /** The last snapshot of each loop, also of those that have ended. */
    private final Map<Key, QuoitLoopSnapshot> last = new HashMap<>();

    private final Set<Key> running = new HashSet<>();
    /** Whom this is bound to, with the loops that have meters there. */
    private final Map<MeterRegistry, Set<Key>> bound = new HashMap<>();

    private long taken;

    /** A binder of all loops of this process. */
    public QuoitMetrics() {}

    @Override
    public void bindTo(MeterRegistry registry) {
        synchronized (this) {
            bound.computeIfAbsent(registry, none -> new HashSet<>());
            take();
        }
        // Read also where no loop has begun yet, so that those are found that begin.
        Gauge.builder(PREFIX + "loops", this, QuoitMetrics::loops)
                .description("event loops that run")
                .strongReference(true)
                .register(registry);
        bindNew();
    }

    /** Gives meters to the loops that have begun. Without the lock: a registry has its own, and may ask for a value in it. */
    private void bindNew() {
        Map<MeterRegistry, List<QuoitLoopSnapshot>> lacking = new HashMap<>();
        synchronized (this) {
            bound.forEach((registry, known) -> {
                List<QuoitLoopSnapshot> begun =
                        running.stream().filter(known::add).map(last::get).toList();
                if (!begun.isEmpty()) {
                    lacking.put(registry, begun);
                }
            });
        }
        lacking.forEach((registry, loops) -> loops.forEach(loop -> bind(registry, loop)));
    }

    private void bind(MeterRegistry registry, QuoitLoopSnapshot loop) {
        Key key = key(loop);
        Tags tags =
                Tags.of("loop", String.valueOf(loop.loop()), "engine", loop.engine().name().toLowerCase(Locale.ROOT));
        for (QuoitMetric metric : loop.metrics()) {
            String name = PREFIX + metric.name().replace('_', '.');
            if (metric.gauge()) {
                Gauge.builder(name, this, binder -> binder.gauge(key, shot -> shot.value(metric.name())))
                        .description(metric.about())
                        .tags(tags)
                        .strongReference(true)
                        .register(registry);
            } else {
                bind(registry, name, metric.about(), tags, key, shot -> shot.value(metric.name()));
            }
        }
        for (QuoitHistogram histogram : loop.histograms()) {
            bind(registry, tags, key, histogram);
        }
    }

    private void bind(MeterRegistry registry, Tags tags, Key key, QuoitHistogram histogram) {
        String of = histogram.name();
        String name = PREFIX + of.replace('_', '.');
        for (double phi : PERCENTILES) {
            Gauge.builder(name, this, binder -> binder.gauge(key, shot -> shot.histogram(of).percentile(phi)))
                    .description(histogram.about())
                    .tags(tags.and("phi", phi == 1 ? "1" : String.valueOf(phi)))
                    .strongReference(true)
                    .register(registry);
        }
        bind(registry, name + ".count", histogram.about(), tags, key, shot -> shot.histogram(of).count());
        bind(registry, name + ".sum", histogram.about(), tags, key, shot -> shot.histogram(of).sum());
    }

    private void bind(
            MeterRegistry registry, String name, String about, Tags tags, Key key, ToLongFunction<QuoitLoopSnapshot> figure) {
        // A function counter refers to its object weakly; the function itself keeps the binder.
        FunctionCounter.builder(name, registry, any -> counter(key, figure))
                .description(about)
                .tags(tags)
                .register(registry);
    }

    private double loops() {
        refresh();
        synchronized (this) {
            return running.size();
        }
    }

    private double gauge(Key key, ToLongFunction<QuoitLoopSnapshot> figure) {
        refresh();
        synchronized (this) {
            return running.contains(key) ? figure.applyAsLong(last.get(key)) : 0;
        }
    }

    private double counter(Key key, ToLongFunction<QuoitLoopSnapshot> figure) {
        refresh();
        synchronized (this) {
            return figure.applyAsLong(last.get(key));
        }
    }

    private void refresh() {
        synchronized (this) {
            if (System.nanoTime() - taken <= FRESH_NANOS) {
                return;
            }
            take();
        }
        bindNew();
    }

    private void take() {
        List<QuoitLoopSnapshot> loops = Quoit.loops();
        taken = System.nanoTime();
        running.clear();
        for (QuoitLoopSnapshot loop : loops) {
            running.add(key(loop));
            last.put(key(loop), loop);
        }
    }

    private static Key key(QuoitLoopSnapshot loop) {
        return new Key(loop.loop(), loop.engine());
    }
}
