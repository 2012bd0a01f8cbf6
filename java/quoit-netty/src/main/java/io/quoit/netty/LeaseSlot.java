package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.util.internal.PlatformDependent;
import java.nio.ByteBuffer;

/**
 * One slot of the native pool, and the buffer that is used for it: a slot has one lease at a time, and so its buffer has one
 * life at a time. Opened on the loop's thread; given back on any.
 */
final class LeaseSlot {
    static final int MEDIUM_BYTES = 3;

    final ByteBuffer view;
    final long address;

    /**
     * Null while the buffer is out: what is never released must not be reachable from here, or the leak detector takes it for
     * in use.
     */
    private Buffer buffer;

    private LeasePool pool;
    /** Of the channel that this life's bytes are for. */
    private ByteBufAllocator allocator;
    private long lease;
    private LeaseHolder holder;

    /** What the buffers of slots have in common: two classes, as Netty's superclasses with and without Unsafe are two. */
    interface Buffer {
        /** Begins a new life, with so many bytes. */
        ByteBuf open(int length);
    }

    /** Lets a buffer that has so many bytes now begin to be read. */
    static ByteBuf rewind(ByteBuf buffer, int bytes) {
        return buffer.setIndex(0, 0).markReaderIndex().markWriterIndex().setIndex(0, bytes);
    }

    /** Moves a buffer's indices into a new capacity. */
    static void fit(ByteBuf buffer, int capacity) {
        if (buffer.writerIndex() > capacity) {
            buffer.setIndex(Math.min(buffer.readerIndex(), capacity), capacity);
        }
    }

    LeaseSlot(ByteBuffer view, long address) {
        this.view = view;
        this.address = address;
    }

    /** The slot's buffer, with the bytes of a lease that it was given just now. */
    ByteBuf open(LeasePool pool, ByteBufAllocator allocator, long lease, int length, LeaseHolder holder) {
        Buffer opened = buffer;
        buffer = null;
        if (opened == null) {
            // As Netty chooses for its own: codecs look at every byte, and by Unsafe without the checks of a ByteBuffer
            // that is a view of a memory segment.
            opened = PlatformDependent.hasUnsafe()
                    ? new UnsafeLeaseByteBuf(this, allocator)
                    : new LeaseByteBuf(this, allocator);
        }
        this.pool = pool;
        this.allocator = allocator;
        this.lease = lease;
        this.holder = holder;
        return opened.open(length);
    }

    ByteBufAllocator allocator() {
        return allocator;
    }

    /** The last reference to the slot's buffer is released; null, if its bytes have moved. The last that its life does here. */
    void release(Buffer released) {
        buffer = released;
        long returned = lease;
        LeaseHolder from = holder;
        holder = null;
        // As soon as the slot is back its next bytes may come, and begin another life. The pool's count of returns, which
        // the loop reads before that, orders the two.
        pool.release(returned, from);
    }
}
