package io.quoit.netty;

import io.quoit.netty.Abi.CounterInfo;
import io.quoit.netty.Abi.Counters;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;

/** The figures of one loop: the library's, and those of the part in Java. */
final class Metrics {
    private static final Collection<Metrics> LOOPS = new ConcurrentLinkedQueue<>();

    /** What the library counts of its enters by powers of two, each a counter whose name ends in the least of its power. */
    private static final String SUBMITTING = "enters_submitting_";

    private static final String BRINGING = "enters_bringing_";

    private record Described(String name, String about, boolean gauge, int offset) {}

    private final NativeLibrary library;
    private final Remote remote;
    private final LeasePool leases;
    private final int index;
    private final QuoitEngine engine;
    private final String reason;
    private final List<Described> described;
    /** Of the loop's thread. */
    private final ByteBuffer own = room();

    private final Histogram turnCommands =
            new Histogram("turn_commands", "commands that a turn took from the event loop's run");
    private final Histogram turnEvents = new Histogram("turn_events", "events that a turn reported");
    private final Histogram writeBytes = new Histogram("write_bytes", "bytes of a write that was given to the loop");
    private final Histogram writePieces =
            new Histogram("write_pieces", "pieces of memory of a write that was given to the loop");
    private final Histogram flushNanos = new Histogram(
            "flush_nanos",
            "nanoseconds from when the bytes of a flush were offered until the kernel had all of them");
    private final List<Histogram> histograms =
            List.of(turnCommands, turnEvents, writeBytes, writePieces, flushNanos);

    Metrics(NativeLibrary library, Remote remote, LeasePool leases, int index, QuoitEngine engine, String reason) {
        this.library = library;
        this.remote = remote;
        this.leases = leases;
        this.index = index;
        this.engine = engine;
        this.reason = reason;
        this.described = describe(library);
    }

    private static ByteBuffer room() {
        return ByteBuffer.allocateDirect(Counters.STRUCT_SIZE).order(ByteOrder.nativeOrder());
    }

    private static List<Described> describe(NativeLibrary library) {
        ByteBuffer info = ByteBuffer.allocateDirect(CounterInfo.STRUCT_SIZE).order(ByteOrder.nativeOrder());
        info.putInt(0, CounterInfo.STRUCT_SIZE);
        List<Described> all = new ArrayList<>();
        for (int number = 0; library.counterDescribe(number, library.address(info)) == 0; number++) {
            int offset = info.getInt(CounterInfo.OFFSET);
            // A newer library has counters that this package has no room for.
            if (offset < Counters.STRUCT_SIZE) {
                all.add(new Described(
                        library.text(info.getLong(CounterInfo.NAME)),
                        library.text(info.getLong(CounterInfo.ABOUT)),
                        info.getInt(CounterInfo.KIND) == Abi.FIGURE_GAUGE,
                        offset));
            }
        }
        return List.copyOf(all);
    }

    static void add(Metrics metrics) {
        LOOPS.add(metrics);
    }

    static void remove(Metrics metrics) {
        LOOPS.remove(metrics);
    }

    static List<QuoitLoopSnapshot> snapshots() {
        return LOOPS.stream().map(Metrics::snapshot).toList();
    }

    /** Any thread. */
    QuoitLoopSnapshot snapshot() {
        ByteBuffer counters = room().putInt(0, Counters.STRUCT_SIZE);
        remote.counters(library.address(counters));
        List<QuoitMetric> metrics = new ArrayList<>(described.size() + 2);
        List<Long> submitting = new ArrayList<>();
        List<Long> bringing = new ArrayList<>();
        for (Described figure : described) {
            long value = counters.getLong(figure.offset);
            if (figure.name.startsWith(SUBMITTING)) {
                submitting.add(value);
            } else if (figure.name.startsWith(BRINGING)) {
                bringing.add(value);
            } else {
                metrics.add(new QuoitMetric(figure.name, figure.about, figure.gauge, value));
            }
        }
        metrics.add(new QuoitMetric(
                "pipeline_slots", "slots of the receive pool that buffers in pipelines hold", true, leases.outstanding()));
        metrics.add(new QuoitMetric(
                "copied_pieces",
                "received pieces that were copied because too many slots were held",
                false,
                leases.copied()));
        List<QuoitHistogram> shapes = new ArrayList<>(histograms.size() + 2);
        shapes.add(new QuoitHistogram(
                "enter_submissions",
                "submission queue entries of an enter; on epoll, operations since the one before",
                List.copyOf(submitting),
                counters.getLong(Counters.SUBMISSIONS)));
        shapes.add(new QuoitHistogram(
                "enter_completions",
                "completion queue entries that an enter brought; on epoll, operations' completions",
                List.copyOf(bringing),
                counters.getLong(Counters.COMPLETIONS)));
        histograms.forEach(histogram -> shapes.add(histogram.snapshot()));
        return new QuoitLoopSnapshot(index, engine, reason, List.copyOf(metrics), List.copyOf(shapes));
    }

    // ---- what the part in Java counts, on the loop's thread ----

    void turn(int commands, int events) {
        turnCommands.add(commands);
        turnEvents.add(events);
    }

    void wrote(int bytes, int pieces) {
        writeBytes.add(bytes);
        writePieces.add(pieces);
    }

    void flushed(long nanos) {
        flushNanos.add(nanos);
    }

    /** Bytes that connections of a loop have yet to send; the loop's thread only. */
    long queuedBytes(long loop) {
        own.putInt(0, Counters.STRUCT_SIZE);
        return library.loopCounters(loop, library.address(own)) < 0 ? 0 : own.getLong(Counters.QUEUED_BYTES);
    }
}
