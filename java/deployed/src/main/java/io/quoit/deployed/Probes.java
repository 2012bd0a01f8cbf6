package io.quoit.deployed;

import io.netty.handler.codec.http.HttpResponseStatus;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;

/** Answers whoever watches. */
final class Probes extends Hello {
    Probes(AtomicBoolean draining) {
        super(draining);
    }

    @Override
    protected Answer answer(String path) {
        return switch (path) {
            case "/readyz" -> draining.get()
                    ? new Answer(HttpResponseStatus.SERVICE_UNAVAILABLE, "draining")
                    : new Answer(HttpResponseStatus.OK, "ok");
            // That of the process: a loop that has failed ends with its connections, and others go on.
            case "/livez" -> new Answer(HttpResponseStatus.OK, "ok");
            case "/metrics" -> new Answer(HttpResponseStatus.OK, metrics(Quoit.loops()));
            default -> null;
        };
    }

    /** The text of Prometheus, each figure of all loops together. */
    private static String metrics(List<QuoitLoopSnapshot> loops) {
        StringBuilder text = new StringBuilder();
        if (loops.isEmpty()) {
            return "";
        }
        for (QuoitMetric described : loops.get(0).metrics()) {
            String name = "quoit_" + described.name() + (described.gauge() ? "" : "_total");
            text.append("# HELP ").append(name).append(' ').append(described.about()).append('\n');
            text.append("# TYPE ").append(name).append(described.gauge() ? " gauge\n" : " counter\n");
            for (QuoitLoopSnapshot loop : loops) {
                String engine = loop.engine().name().toLowerCase(Locale.ROOT);
                for (QuoitMetric metric : loop.metrics()) {
                    if (metric.name().equals(described.name())) {
                        text.append(name)
                                .append("{loop=\"" + loop.loop() + "\",engine=\"" + engine + "\"} ")
                                .append(metric.value())
                                .append('\n');
                    }
                }
            }
        }
        return text.toString();
    }
}
