package io.quoit.netty;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * The memory that small messages are gathered in ({@link Gathering}): at most {@value #MOST} chunks of
 * {@value #CHUNK_BYTES} bytes a loop, made when they are first needed and used again. The loop's thread only.
 */
final class GatherPool {
    static final int CHUNK_BYTES = 64 << 10;

    /** As many connections can have a gathered flush in flight; the messages of others are lent one by one. */
    private static final int MOST = 64;

    /** Pools of loops that did not end cleanly: the kernel may still read them. */
    private static final Collection<GatherPool> ABANDONED = new ConcurrentLinkedQueue<>();

    private final NativeLibrary library;
    private final ArrayDeque<Chunk> spare = new ArrayDeque<>(MOST);
    private final Chunk[] made = new Chunk[MOST];
    private int count;

    /** Native memory, and where it is. */
    static final class Chunk {
        final ByteBuffer memory;
        final long address;

        private Chunk(NativeLibrary library) {
            memory = ByteBuffer.allocateDirect(CHUNK_BYTES).order(ByteOrder.nativeOrder());
            address = library.address(memory);
        }
    }

    GatherPool(NativeLibrary library) {
        this.library = library;
    }

    /** A chunk, the one that was given back last if there is one; null if all are in use. */
    Chunk take() {
        Chunk chunk = spare.pollLast();
        if (chunk == null && count < MOST) {
            chunk = new Chunk(library);
            made[count++] = chunk;
        }
        return chunk;
    }

    void give(Chunk chunk) {
        spare.addLast(chunk);
    }

    /** Keeps the memory for as long as the process runs. */
    void abandon() {
        ABANDONED.add(this);
    }
}
