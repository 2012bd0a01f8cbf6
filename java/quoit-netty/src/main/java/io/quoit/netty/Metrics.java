package io.quoit.netty;

import io.quoit.netty.Abi.Counters;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collection;
import java.util.concurrent.ConcurrentLinkedQueue;

/** The counters of one loop: the library's, as it last published them, and those of the part in Java. */
final class Metrics {
    private static final Collection<Metrics> LOOPS = new ConcurrentLinkedQueue<>();

    private final NativeLibrary library;
    private final Remote remote;
    private final LeasePool leases;
    private final QuoitEngine engine;
    private final String reason;
    private final ByteBuffer own = room();

    Metrics(NativeLibrary library, Remote remote, LeasePool leases, QuoitEngine engine, String reason) {
        this.library = library;
        this.remote = remote;
        this.leases = leases;
        this.engine = engine;
        this.reason = reason;
    }

    private static ByteBuffer room() {
        return ByteBuffer.allocateDirect(Counters.STRUCT_SIZE).order(ByteOrder.nativeOrder());
    }

    static void add(Metrics metrics) {
        LOOPS.add(metrics);
    }

    static void remove(Metrics metrics) {
        LOOPS.remove(metrics);
    }

    /** Bytes that connections of a loop have yet to send; the loop's thread only. */
    long queuedBytes(long loop) {
        own.putInt(0, Counters.STRUCT_SIZE);
        return library.loopCounters(loop, library.address(own)) < 0 ? 0 : own.getLong(Counters.QUEUED_BYTES);
    }
}
