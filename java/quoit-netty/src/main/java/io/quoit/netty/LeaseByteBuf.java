package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.UnpooledDirectByteBuf;
import java.nio.ByteBuffer;

/**
 * Received bytes in a slot of the loop's pool. Releasing the last reference, on any thread, gives the slot back and makes
 * this object ready for the slot's next bytes: it is used again, as pooled buffers are.
 */
final class LeaseByteBuf extends UnpooledDirectByteBuf {
    /**
     * One slot of the native pool, and the buffer that is used for it: a slot has one lease at a time, and so its buffer has
     * one life at a time. The loop's thread only.
     */
    static final class Slot {
        final ByteBuffer view;
        final long address;
        private LeaseByteBuf buffer;

        Slot(ByteBuffer view, long address) {
            this.view = view;
            this.address = address;
        }

        /** The slot's buffer, for bytes of a lease that it was given just now. */
        LeaseByteBuf buffer(LeasePool pool, ByteBufAllocator allocator) {
            if (buffer == null) {
                buffer = new LeaseByteBuf(pool, this, allocator);
            }
            return buffer;
        }
    }

    private final LeasePool pool;
    private final Slot slot;
    private long lease;
    private int length;
    private LeaseHolder holder;

    LeaseByteBuf(LeasePool pool, Slot slot, ByteBufAllocator allocator) {
        super(allocator, slot.view, slot.view.capacity());
        this.pool = pool;
        this.slot = slot;
    }

    /** Begins a new life, with the bytes of an event. */
    LeaseByteBuf open(long lease, int length, LeaseHolder holder) {
        this.lease = lease;
        this.length = length;
        this.holder = holder;
        resetRefCnt();
        maxCapacity(length);
        setIndex(0, 0);
        markReaderIndex();
        markWriterIndex();
        setIndex(0, length);
        return this;
    }

    @Override
    public int capacity() {
        // The superclass asks while it is being made.
        return slot == null ? super.capacity() : length;
    }

    @Override
    public ByteBuf capacity(int newCapacity) {
        checkNewCapacity(newCapacity);
        if (newCapacity < length) {
            trim(newCapacity);
            length = newCapacity;
        }
        return this;
    }

    private void trim(int newCapacity) {
        if (writerIndex() > newCapacity) {
            setIndex(Math.min(readerIndex(), newCapacity), newCapacity);
        }
    }

    @Override
    public boolean hasMemoryAddress() {
        return true;
    }

    @Override
    public long memoryAddress() {
        return slot.address;
    }

    @Override
    protected void deallocate() {
        long returned = lease;
        LeaseHolder from = holder;
        holder = null;
        // The last that is done here: as soon as the slot is back its next bytes may come, and begin another life. The
        // pool's count of returns, which the loop reads before that, orders the two.
        pool.release(returned, from);
    }
}
