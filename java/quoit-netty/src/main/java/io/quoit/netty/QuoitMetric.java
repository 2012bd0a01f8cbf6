package io.quoit.netty;

/**
 * One figure of a loop.
 *
 * @param name its name, such as {@code enters}; docs/metrics.md of the repository explains each
 * @param about what it is, in one line
 * @param gauge whether it is a present value; otherwise it only grows
 * @param value the value
 */
public record QuoitMetric(String name, String about, boolean gauge, long value) {}
