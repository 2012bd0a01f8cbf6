package io.quoit.netty;

import io.netty.channel.ChannelException;

/**
 * A write was refused because more bytes wait to be sent on its channel than
 * {@link QuoitChannelOption#PENDING_WRITE_LIMIT} allows: the application has written on though {@code isWritable} said no.
 */
public final class PendingWritesException extends ChannelException {
    private static final long serialVersionUID = 1L;

    PendingWritesException(long pending, long limit) {
        super(pending + " bytes wait to be sent, and the limit is " + limit + ": write again when the channel is writable");
    }
}
