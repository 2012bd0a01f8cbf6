package io.quoit.netty;

import java.util.ArrayList;
import java.util.List;

/** Counts values by their powers of two; written by its loop, and read by any thread a moment later. */
final class Histogram {
    /** The last one holds all from 2<sup>42</sup> on, which is more than an hour in nanoseconds. */
    private static final int BUCKETS = 44;

    private final String name;
    private final String about;
    private final long[] counts = new long[BUCKETS];
    private long sum;

    Histogram(String name, String about) {
        this.name = name;
        this.about = about;
    }

    void add(long value) {
        counts[Math.min(BUCKETS - 1, Long.SIZE - Long.numberOfLeadingZeros(value))]++;
        sum += value;
    }

    QuoitHistogram snapshot() {
        int used = BUCKETS;
        while (used > 0 && counts[used - 1] == 0) {
            used--;
        }
        List<Long> copy = new ArrayList<>(used);
        for (int bucket = 0; bucket < used; bucket++) {
            copy.add(counts[bucket]);
        }
        return new QuoitHistogram(name, about, List.copyOf(copy), sum);
    }
}
