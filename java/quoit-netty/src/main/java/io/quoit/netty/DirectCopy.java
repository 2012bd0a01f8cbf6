package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;

/** Bytes on their way out that are not in native memory, as Netty's other transports treat them. */
final class DirectCopy {
    private DirectCopy() {}

    /** A direct buffer with the readable bytes of one that is released. */
    static ByteBuf of(ByteBuf bytes, ByteBufAllocator allocator) {
        int length = bytes.readableBytes();
        if (length == 0) {
            bytes.release();
            return Unpooled.EMPTY_BUFFER;
        }
        ByteBuf copy;
        if (allocator.isDirectBufferPooled()) {
            copy = allocator.directBuffer(length);
        } else {
            ByteBuf local = ByteBufUtil.threadLocalDirectBuffer();
            copy = local == null ? allocator.directBuffer(length) : local;
        }
        copy.writeBytes(bytes, bytes.readerIndex(), length);
        bytes.release();
        return copy;
    }

    /**
     * Copies a message's readable bytes to a place in native memory, without memory on the heap where the message's memory is
     * in one piece.
     *
     * @param memory the place's memory, all of it between position and limit
     * @param address that of its byte 0
     */
    static void into(ByteBuffer memory, long address, int at, ByteBuf bytes, int length) {
        if (bytes.hasMemoryAddress()) {
            // Also spares the view that a pooled buffer would make for this.
            NativeLoader.library().copy(bytes.memoryAddress() + bytes.readerIndex(), address + at, length);
        } else if (bytes.nioBufferCount() == 1) {
            // The buffer's own view: any other would be made for this.
            ByteBuffer source = bytes.internalNioBuffer(bytes.readerIndex(), length);
            memory.put(at, source, source.position(), length);
        } else {
            memory.limit(at + length).position(at);
            bytes.getBytes(bytes.readerIndex(), memory);
            memory.clear();
        }
    }
}
