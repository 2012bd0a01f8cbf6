package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.FileRegion;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/**
 * The parts of a file region, read into memory: Java tells no descriptor of a {@code FileChannel} that the kernel could
 * send from.
 */
final class FileChunk {
    private static final int BYTES = 256 << 10;

    private FileChunk() {}

    /**
     * Reads the next part, at least a byte. What was read before the region failed is such a part: the next one meets the
     * failure again.
     *
     * @throws IOException if there is none, as where the file is shorter than the region says
     */
    static ByteBuf read(AbstractQuoitStreamChannel channel, FileRegion region) throws IOException {
        long left = region.count() - region.transferred();
        ByteBuf room = channel.alloc().directBuffer((int) Math.min(left, BYTES));
        try {
            fill(room, channel, region);
        } catch (Throwable failure) {
            if (!room.isReadable()) {
                room.release();
                throw failure;
            }
        }
        if (!room.isReadable()) {
            room.release();
            throw new IOException("a file region gave no bytes at " + region.transferred() + " of " + region.count());
        }
        return room;
    }

    /** Reads as much as there is room for, or as there is. */
    static void fill(ByteBuf room, AbstractQuoitStreamChannel channel, FileRegion region) throws IOException {
        while (room.isWritable() && region.transferred() < region.count()) {
            long before = region.transferred();
            if (region.transferTo(new Room(room), before) <= 0) {
                channel.validate(region, before);
                return;
            }
        }
    }

    /** Takes bytes, as many as there is room for. */
    private record Room(ByteBuf bytes) implements WritableByteChannel {
        @Override
        public int write(ByteBuffer source) {
            int length = Math.min(source.remaining(), bytes.writableBytes());
            int limit = source.limit();
            source.limit(source.position() + length);
            bytes.writeBytes(source);
            source.limit(limit);
            return length;
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {}
    }
}
