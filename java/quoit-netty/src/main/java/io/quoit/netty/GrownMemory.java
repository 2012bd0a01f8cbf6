package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.util.internal.CleanableDirectBuffer;
import java.nio.ByteBuffer;

/** The memory of received bytes that have outgrown their slot: of the channel's allocator, as all of other transports'. */
final class GrownMemory implements CleanableDirectBuffer {
    private final ByteBuf memory;
    private final ByteBuffer view;

    GrownMemory(ByteBufAllocator allocator, int capacity) {
        memory = allocator.directBuffer(capacity, capacity);
        view = memory.nioBuffer(0, capacity);
    }

    @Override
    public ByteBuffer buffer() {
        return view;
    }

    @Override
    public void clean() {
        memory.release();
    }

    @Override
    public boolean hasMemoryAddress() {
        return memory.hasMemoryAddress();
    }

    @Override
    public long memoryAddress() {
        return memory.memoryAddress();
    }
}
