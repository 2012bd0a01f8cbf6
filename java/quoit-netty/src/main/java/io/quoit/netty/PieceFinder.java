package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import java.nio.ByteBuffer;

/** Finds where the piece with a token begins, by the messages that were lent: pieces are known by their ends. */
final class PieceFinder implements ChannelOutboundBuffer.MessageProcessor {
    private final long token;
    private long start;
    private long end;

    private PieceFinder(long token, long from) {
        this.token = token;
        this.start = from;
        this.end = from;
    }

    /**
     * Where the piece begins that ends at {@code token}, in bytes lent; the first message of the buffer begins at
     * {@code from}.
     */
    static long start(ChannelOutboundBuffer buffer, long token, long from) {
        PieceFinder finder = new PieceFinder(token, from);
        try {
            buffer.forEachFlushedMessage(finder);
        } catch (Exception impossible) {
            throw new IllegalStateException("walking over messages throws nothing", impossible);
        }
        return finder.start;
    }

    @Override
    public boolean processMessage(Object message) {
        ByteBuf bytes = (ByteBuf) message;
        if (bytes.hasMemoryAddress() || bytes.nioBufferCount() == 1) {
            return passes(bytes.readableBytes());
        }
        for (ByteBuffer part : bytes.nioBuffers(bytes.readerIndex(), bytes.readableBytes())) {
            if (!passes(part.remaining())) {
                return false;
            }
        }
        return true;
    }

    private boolean passes(int length) {
        start = end;
        end += length;
        return end < token;
    }
}
