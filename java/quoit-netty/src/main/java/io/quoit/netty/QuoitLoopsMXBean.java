package io.quoit.netty;

import java.util.List;
import java.util.Map;

/**
 * The figures of all loops that run in this process, for JMX: {@link QuoitJmx#register()} makes them known. Keys are the
 * loops' numbers. Figures are as old as {@link Quoit#loops()} says.
 */
public interface QuoitLoopsMXBean {
    /**
     * The kernel interfaces that the loops run on.
     *
     * @return {@code URING} or {@code EPOLL}, and why, by loop
     */
    Map<Integer, String> getEngines();

    /**
     * Counters and gauges.
     *
     * @return values by loop and name; docs/metrics.md of the repository explains each name
     */
    Map<Integer, Map<String, Long>> getFigures();

    /**
     * What varies from turn to turn and from write to write.
     *
     * @return by loop and name, how often values came: of 0, of 1, of 2 to 3, and so on by powers of two
     */
    Map<Integer, Map<String, List<Long>>> getHistograms();
}
