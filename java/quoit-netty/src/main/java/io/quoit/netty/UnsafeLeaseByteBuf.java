package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledUnsafeDirectByteBuf;
import io.netty.util.internal.CleanableDirectBuffer;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.GatheringByteChannel;

/** As {@link LeaseByteBuf}, with Netty's access to memory by Unsafe. */
final class UnsafeLeaseByteBuf extends UnpooledUnsafeDirectByteBuf implements LeaseSlot.Buffer {
    private final LeaseSlot slot;
    private int length;
    /** What it may have within the slot. */
    private int room;
    /** What it shall have in other memory. */
    private int wanted;
    /** The allocator of that memory, once this life's bytes have outgrown the slot; then this object is not used again. */
    private ByteBufAllocator grownBy;

    UnsafeLeaseByteBuf(LeaseSlot slot, ByteBufAllocator allocator) {
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

    // The superclass checks the bounds of all but these, which it inherits: they are by those that it checks.

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
