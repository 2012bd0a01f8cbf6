package io.quoit.netty;

import java.util.List;

/**
 * What can be used here, and why not more.
 *
 * @param available whether the transport can be used at all
 * @param cause why not; empty if it can
 * @param version the version of libquoit; empty without it
 * @param access how Java calls it: {@code ffm} or {@code jni}; empty without it
 * @param uringUsable whether loops can run on io_uring
 * @param uringReason that they can, or what is missing and the remedy, in one line
 * @param features the features of io_uring that Quoit uses
 */
public record QuoitReport(
        boolean available,
        String cause,
        String version,
        String access,
        boolean uringUsable,
        String uringReason,
        List<Feature> features) {
    /**
     * A feature of io_uring.
     *
     * @param name its name, for {@link QuoitIoHandlerConfig#withoutFeatures}
     * @param about what it is, in one line
     * @param usable whether it can be used here
     * @param reason why not
     * @param minimumKernel the first mainline kernel that has it
     * @param bit its bit in the C ABI
     */
    public record Feature(
            String name, String about, boolean usable, String reason, String minimumKernel, long bit) {}

    /** The report as text, a fact a line. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        if (!available) {
            return text.append("quoit: not available: ").append(cause).toString();
        }
        text.append("quoit ").append(version).append(": available, called by ").append(access).append("\nio_uring: ").append(uringReason);
        for (Feature feature : features) {
            text.append("\n  ").append(feature.name()).append(": ").append(feature.usable() ? "yes" : feature.reason());
        }
        return text.toString();
    }
}
