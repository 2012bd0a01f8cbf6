package io.quoit.netty;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A loop's remote: what any thread may use, also after the loop is gone. It lasts as long as something refers to it: the
 * handler, or a buffer over received memory.
 */
final class Remote {
    private static final Cleaner CLEANER = Cleaner.create();

    private final NativeLibrary library;
    private final long handle;

    Remote(NativeLibrary library, long handle) {
        this.library = library;
        this.handle = handle;
        CLEANER.register(this, () -> library.remoteRelease(handle));
    }

    void wake() {
        library.remoteWake(handle);
        java.lang.ref.Reference.reachabilityFence(this);
    }

    /** Returns one lease. */
    void returnLease(long lease) {
        ByteBuffer room = ROOM.get().buffer;
        room.putLong(0, lease);
        library.remoteReturnLeases(handle, ROOM.get().address, 1);
        java.lang.ref.Reference.reachabilityFence(this);
    }

    int counters(long counters) {
        int result = library.remoteCounters(handle, counters);
        java.lang.ref.Reference.reachabilityFence(this);
        return result;
    }

    /** A thread's native memory for one lease number. */
    private static final class Room {
        final ByteBuffer buffer = ByteBuffer.allocateDirect(Long.BYTES).order(ByteOrder.nativeOrder());
        final long address = NativeLoader.library().address(buffer);
    }

    private static final ThreadLocal<Room> ROOM = ThreadLocal.withInitial(Room::new);
}
