package io.quoit.netty;

import java.util.List;

/**
 * The figures of one loop at one moment.
 *
 * @param loop the loop's number in this process
 * @param engine the kernel interface that it runs on
 * @param engineReason why that one
 * @param metrics the figures, always in the same order
 * @param histograms what varies from turn to turn and from write to write, always in the same order
 */
public record QuoitLoopSnapshot(
        int loop,
        QuoitEngine engine,
        String engineReason,
        List<QuoitMetric> metrics,
        List<QuoitHistogram> histograms) {
    /**
     * The figure with a name.
     *
     * @param name such as {@code enters}
     * @return its value
     * @throws IllegalArgumentException if there is no such figure
     */
    public long value(String name) {
        for (QuoitMetric metric : metrics) {
            if (metric.name().equals(name)) {
                return metric.value();
            }
        }
        throw new IllegalArgumentException("there is no figure " + name);
    }

    /**
     * The histogram with a name.
     *
     * @param name {@code enter_submissions}, {@code enter_completions}, {@code turn_commands}, {@code turn_events},
     *     {@code write_bytes}, {@code write_pieces} or {@code flush_nanos}
     * @return the histogram
     * @throws IllegalArgumentException if there is no such histogram
     */
    public QuoitHistogram histogram(String name) {
        for (QuoitHistogram histogram : histograms) {
            if (histogram.name().equals(name)) {
                return histogram;
            }
        }
        throw new IllegalArgumentException("there is no histogram " + name);
    }
}
