package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;

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
}
