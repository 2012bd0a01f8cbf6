package io.quoit.peers;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitHistogram;
import io.quoit.netty.QuoitLoopSnapshot;
import io.quoit.netty.QuoitMetric;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Executors;

/** The figures of Quoit's loops under /metrics, as OpenMetrics, by the names that {@code quoit serve --metrics} has. */
final class Figures {
    private static final String TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    private Figures() {}

    /** Serves them from a thread of its own, and answers where. */
    static InetSocketAddress serve(InetSocketAddress address) throws IOException {
        HttpServer server = HttpServer.create(address, 0);
        server.createContext("/metrics", Figures::answer);
        server.setExecutor(Executors.newSingleThreadExecutor(
                task -> Thread.ofPlatform().name("metrics").daemon().unstarted(task)));
        server.start();
        return server.getAddress();
    }

    /** The connection is kept: a server that has no descriptor left for another is still asked on it. */
    private static void answer(HttpExchange exchange) throws IOException {
        try (exchange) {
            byte[] body = text(Quoit.loops()).getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", TYPE);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
        }
    }

    /** The text of the loops' figures, each of which all loops have in the same order. */
    static String text(List<QuoitLoopSnapshot> loops) {
        StringBuilder text = new StringBuilder();
        if (!loops.isEmpty()) {
            QuoitLoopSnapshot first = loops.get(0);
            describe(text, "engine", "The engine and why it runs", "info");
            text.append("quoit_engine_info{engine=\"")
                    .append(first.engine().name().toLowerCase(Locale.ROOT))
                    .append("\",reason=\"")
                    .append(escaped(first.engineReason()))
                    .append("\"} 1\n");
            for (int place = 0; place < first.metrics().size(); place++) {
                describe(text, first.metrics().get(place));
                for (QuoitLoopSnapshot loop : loops) {
                    sample(text, loop.loop(), loop.metrics().get(place));
                }
            }
            entersByPowersOfTwo(text, loops, "enter_submissions", "enters_submitting_");
            entersByPowersOfTwo(text, loops, "enter_completions", "enters_bringing_");
        }
        return text.append("# EOF\n").toString();
    }

    /** What the transport has as a histogram, and {@code quoit serve} as a counter a power of two. */
    private static void entersByPowersOfTwo(
            StringBuilder text, List<QuoitLoopSnapshot> loops, String histogram, String prefix) {
        QuoitHistogram shape = loops.get(0).histogram(histogram);
        for (int bucket = 0; bucket < shape.counts().size(); bucket++) {
            long least = bucket == 0 ? 0 : QuoitHistogram.most(bucket - 1) + 1;
            String name = prefix + least;
            describe(text, name, shape.about() + ", by powers of two: from " + least + " on", "counter");
            for (QuoitLoopSnapshot loop : loops) {
                long count = loop.histogram(histogram).counts().get(bucket);
                sample(text, loop.loop(), new QuoitMetric(name, shape.about(), false, count));
            }
        }
    }

    private static void describe(StringBuilder text, QuoitMetric metric) {
        describe(text, metric.name(), metric.about(), metric.gauge() ? "gauge" : "counter");
    }

    private static void describe(StringBuilder text, String name, String about, String kind) {
        text.append("# HELP quoit_").append(name).append(' ').append(escaped(about)).append('\n');
        text.append("# TYPE quoit_").append(name).append(' ').append(kind).append('\n');
    }

    private static void sample(StringBuilder text, int loop, QuoitMetric metric) {
        text.append("quoit_").append(metric.name()).append(metric.gauge() ? "" : "_total");
        text.append("{loop=\"").append(loop).append("\"} ").append(metric.value()).append('\n');
    }

    private static String escaped(String words) {
        return words.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
    }
}
