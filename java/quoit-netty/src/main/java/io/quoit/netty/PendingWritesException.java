package io.quoit.netty;

import io.netty.channel.ChannelException;
import io.netty.channel.ChannelOutboundBuffer;

/**
 * A write was refused because more bytes wait to be sent on its channel than
 * {@link QuoitChannelOption#PENDING_WRITE_LIMIT} allows: the application has written on though {@code isWritable} said no.
 */
public final class PendingWritesException extends ChannelException {
    private static final long serialVersionUID = 1L;

    PendingWritesException(long pending, long limit) {
        super(pending + " bytes wait to be sent, and the limit is " + limit + ": write again when the channel is writable");
    }

    /** Throws it if as many bytes wait in a channel's queue as may; 0: there is no limit. */
    static void check(ChannelOutboundBuffer queue, long limit) {
        if (limit > 0 && queue != null && queue.totalPendingWriteBytes() >= limit) {
            throw new PendingWritesException(queue.totalPendingWriteBytes(), limit);
        }
    }

    /** Checks a value of the option. */
    static long limit(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("PENDING_WRITE_LIMIT: " + bytes + " (expected: >= 0)");
        }
        return bytes;
    }
}
