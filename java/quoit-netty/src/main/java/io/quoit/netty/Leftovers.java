package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.FileRegion;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.util.ArrayList;

/**
 * What is left to be sent when Netty lets go of a channel's queue: buffers that are in flight, and, copied, what was flushed
 * behind them. Other transports have given that to the kernel by then, as far as it had room; so nothing is missing here
 * either if a handler flushes twice and closes.
 */
final class Leftovers implements ChannelOutboundBuffer.MessageProcessor {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(Leftovers.class);

    private final AbstractQuoitStreamChannel channel;
    /** In flight; null if nothing is. */
    private ArrayList<ByteBuf> lent;
    /** Goes behind that; null if there is nothing. */
    private ByteBuf tail;

    // The state of the walk over the flushed messages: bytes of the next ones that have gone, or will; of those behind that
    // are in flight; and what the tail may have.
    private long gone;
    private long flying;
    private int most;

    Leftovers(AbstractQuoitStreamChannel channel) {
        this.channel = channel;
    }

    boolean hasTail() {
        return tail != null;
    }

    /**
     * Keeps what is flushed: what is in flight, and the bytes behind it as far as they can be read.
     *
     * @param flying how many bytes are in flight
     * @param gone how many bytes before those have gone, or will without being kept
     * @param most how many bytes behind them are copied
     */
    void keep(ChannelOutboundBuffer flushed, long flying, long gone, int most) {
        this.flying = flying;
        this.gone = gone;
        this.most = most;
        if (flying > 0) {
            lent = new ArrayList<>();
        }
        copy(null, flushed);
    }

    /** As above, with a file at the head: {@code chunk}, which is this object's from now on, is the part that was read last. */
    void keepFile(ChannelOutboundBuffer flushed, ByteBuf chunk, boolean inFlight, int most) {
        this.most = most;
        if (inFlight) {
            lent = new ArrayList<>();
            lent.add(chunk);
            copy(null, flushed);
        } else {
            copy(chunk, flushed);
            chunk.release();
        }
    }

    private void copy(ByteBuf first, ChannelOutboundBuffer flushed) {
        try {
            if (first == null || add(first, 0)) {
                flushed.forEachFlushedMessage(this);
            }
        } catch (Throwable end) {
            // Unreadable, or without memory: its promise fails in any case, as those of all others do.
            LOGGER.debug("Quoit: what was flushed before a close is not sent from here on", end);
        }
        if (tail != null && !tail.isReadable()) {
            releaseTail();
        }
    }

    @Override
    public boolean processMessage(Object message) throws Exception {
        if (message instanceof FileRegion region) {
            if (region.transferred() < region.count()) {
                FileChunk.fill(room(), channel, region);
            }
            return region.transferred() >= region.count();
        }
        ByteBuf bytes = (ByteBuf) message;
        int length = bytes.readableBytes();
        int before = (int) Math.min(gone, length);
        gone -= before;
        int lends = (int) Math.min(flying, length - before);
        if (lends > 0) {
            flying -= lends;
            lent.add(bytes.retain());
        }
        return add(bytes, before + lends);
    }

    /** Adds a buffer's bytes but for the first ones to the tail; returns whether all of them had room. */
    private boolean add(ByteBuf bytes, int from) {
        int length = bytes.readableBytes() - from;
        if (length == 0) {
            return true;
        }
        int added = Math.min(length, room().writableBytes());
        tail.writeBytes(bytes, bytes.readerIndex() + from, added);
        return added == length;
    }

    private ByteBuf room() {
        if (tail == null) {
            tail = channel.alloc().directBuffer(most, most);
        }
        return tail;
    }

    /** The tail is in flight from now on. */
    ByteBuf lendTail() {
        ByteBuf lends = tail;
        tail = null;
        lent = new ArrayList<>();
        lent.add(lends);
        return lends;
    }

    /** What was in flight has been sent. */
    void releaseLent() {
        if (lent != null) {
            ArrayList<ByteBuf> released = lent;
            lent = null;
            released.forEach(ReferenceCountUtil::safeRelease);
        }
    }

    void releaseTail() {
        if (tail != null) {
            tail.release();
            tail = null;
        }
    }

    /** Nothing of it will be sent any more. */
    void release() {
        releaseTail();
        releaseLent();
    }
}
