package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.UnpooledUnsafeDirectByteBuf;

/** As {@link LeaseByteBuf}, with Netty's access to memory by Unsafe. */
final class UnsafeLeaseByteBuf extends UnpooledUnsafeDirectByteBuf implements LeaseSlot.Buffer {
    private final LeaseSlot slot;
    private int length;

    UnsafeLeaseByteBuf(LeaseSlot slot, ByteBufAllocator allocator) {
        super(allocator, slot.view, slot.view.capacity());
        this.slot = slot;
    }

    @Override
    public ByteBuf open(int bytes) {
        length = bytes;
        resetRefCnt();
        maxCapacity(bytes);
        return LeaseSlot.rewind(this, bytes);
    }

    @Override
    public int capacity() {
        // The superclass asks while it is being made.
        return slot == null ? super.capacity() : length;
    }

    @Override
    public ByteBuf capacity(int newCapacity) {
        checkNewCapacity(newCapacity);
        length = LeaseSlot.shrink(this, length, newCapacity);
        return this;
    }

    // The superclass checks the bounds of all but these, which it inherits: see LeaseByteBuf.

    @Override
    public short getShortLE(int index) {
        checkIndex(index, Short.BYTES);
        return _getShortLE(index);
    }

    @Override
    public int getIntLE(int index) {
        checkIndex(index, Integer.BYTES);
        return _getIntLE(index);
    }

    @Override
    public long getLongLE(int index) {
        checkIndex(index, Long.BYTES);
        return _getLongLE(index);
    }

    @Override
    public ByteBuf setShortLE(int index, int value) {
        checkIndex(index, Short.BYTES);
        _setShortLE(index, value);
        return this;
    }

    @Override
    public ByteBuf setMediumLE(int index, int value) {
        checkIndex(index, LeaseSlot.MEDIUM_BYTES);
        _setMediumLE(index, value);
        return this;
    }

    @Override
    public ByteBuf setIntLE(int index, int value) {
        checkIndex(index, Integer.BYTES);
        _setIntLE(index, value);
        return this;
    }

    @Override
    public ByteBuf setLongLE(int index, long value) {
        checkIndex(index, Long.BYTES);
        _setLongLE(index, value);
        return this;
    }

    @Override
    protected void deallocate() {
        slot.release();
    }
}
