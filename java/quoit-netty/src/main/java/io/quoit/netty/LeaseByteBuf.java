package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledDirectByteBuf;
import io.netty.util.internal.CleanableDirectBuffer;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.channels.GatheringByteChannel;

/**
 * Received bytes in a slot of the loop's pool. Releasing the last reference, on any thread, gives the slot back and makes
 * this object ready for the slot's next bytes: it is used again, as pooled buffers are. Bytes that outgrow what was received
 * move to memory of the channel's allocator, and the slot is free. {@link UnsafeLeaseByteBuf} is the same where Netty may use
 * Unsafe.
 */
final class LeaseByteBuf extends UnpooledDirectByteBuf implements LeaseSlot.Buffer {
    private final LeaseSlot slot;
    private int length;
    /** What it may have within the slot. */
    private int room;
    /** What it shall have in other memory. */
    private int wanted;
    /** The allocator of that memory, once this life's bytes have outgrown the slot; then this object is not used again. */
    private ByteBufAllocator grownBy;

    LeaseByteBuf(LeaseSlot slot, ByteBufAllocator allocator) {
        super(allocator, slot.view, Integer.MAX_VALUE);
        this.slot = slot;
    }

    @Override
    public ByteBuf open(int bytes) {
        length = bytes;
        room = bytes;
        resetRefCnt();
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
        if (newCapacity > room || grownBy != null) {
            grow(newCapacity);
        } else {
            LeaseSlot.fit(this, newCapacity);
        }
        length = newCapacity;
        return this;
    }

    private void grow(int newCapacity) {
        wanted = newCapacity;
        if (grownBy != null) {
            super.capacity(newCapacity);
            return;
        }
        // The superclass knows nothing of this life, and copies as much as its ByteBuffer has, or as it is told to have.
        super.capacity(length == slot.view.capacity() ? newCapacity : length);
        grownBy = slot.allocator();
        slot.release(null);
    }

    @Override
    protected CleanableDirectBuffer allocateDirectBuffer(int ignored) {
        return new GrownMemory(alloc(), wanted);
    }

    @Override
    public ByteBufAllocator alloc() {
        if (grownBy != null) {
            return grownBy;
        }
        return slot == null ? super.alloc() : slot.allocator();
    }

    @Override
    public boolean hasMemoryAddress() {
        return grownBy == null || super.hasMemoryAddress();
    }

    @Override
    public long memoryAddress() {
        return grownBy == null ? slot.address : super.memoryAddress();
    }

    // The superclass leaves the bounds of these to its ByteBuffer, which is the whole slot: behind this life's bytes are
    // those of earlier ones, perhaps of other connections.

    @Override
    public byte getByte(int index) {
        checkIndex(index);
        return _getByte(index);
    }

    @Override
    public short getShort(int index) {
        checkIndex(index, Short.BYTES);
        return _getShort(index);
    }

    @Override
    public int getUnsignedMedium(int index) {
        checkIndex(index, LeaseSlot.MEDIUM_BYTES);
        return _getUnsignedMedium(index);
    }

    @Override
    public int getInt(int index) {
        checkIndex(index, Integer.BYTES);
        return _getInt(index);
    }

    @Override
    public long getLong(int index) {
        checkIndex(index, Long.BYTES);
        return _getLong(index);
    }

    @Override
    public ByteBuf setByte(int index, int value) {
        checkIndex(index);
        _setByte(index, value);
        return this;
    }

    @Override
    public ByteBuf setShort(int index, int value) {
        checkIndex(index, Short.BYTES);
        _setShort(index, value);
        return this;
    }

    @Override
    public ByteBuf setMedium(int index, int value) {
        checkIndex(index, LeaseSlot.MEDIUM_BYTES);
        _setMedium(index, value);
        return this;
    }

    @Override
    public ByteBuf setInt(int index, int value) {
        checkIndex(index, Integer.BYTES);
        _setInt(index, value);
        return this;
    }

    @Override
    public ByteBuf setLong(int index, long value) {
        checkIndex(index, Long.BYTES);
        _setLong(index, value);
        return this;
    }

    @Override
    public ByteBuf getBytes(int index, OutputStream out, int length) throws IOException {
        checkIndex(index, length);
        return super.getBytes(index, out, length);
    }

    @Override
    public int getBytes(int index, GatheringByteChannel out, int length) throws IOException {
        checkIndex(index, length);
        return super.getBytes(index, out, length);
    }

    @Override
    public int getBytes(int index, FileChannel out, long position, int length) throws IOException {
        checkIndex(index, length);
        return super.getBytes(index, out, position, length);
    }

    @Override
    public ByteBuf copy(int index, int length) {
        checkIndex(index, length);
        return super.copy(index, length);
    }

    // The same of the other byte order, by what has been checked above.

    @Override
    public short getShortLE(int index) {
        return ByteBufUtil.swapShort(getShort(index));
    }

    @Override
    public int getIntLE(int index) {
        return ByteBufUtil.swapInt(getInt(index));
    }

    @Override
    public long getLongLE(int index) {
        return ByteBufUtil.swapLong(getLong(index));
    }

    @Override
    public ByteBuf setShortLE(int index, int value) {
        return setShort(index, ByteBufUtil.swapShort((short) value));
    }

    @Override
    public ByteBuf setMediumLE(int index, int value) {
        return setMedium(index, ByteBufUtil.swapMedium(value));
    }

    @Override
    public ByteBuf setIntLE(int index, int value) {
        return setInt(index, ByteBufUtil.swapInt(value));
    }

    @Override
    public ByteBuf setLongLE(int index, long value) {
        return setLong(index, ByteBufUtil.swapLong(value));
    }

    @Override
    protected void deallocate() {
        if (grownBy == null) {
            slot.release(this);
        } else {
            super.deallocate();
        }
    }
}
