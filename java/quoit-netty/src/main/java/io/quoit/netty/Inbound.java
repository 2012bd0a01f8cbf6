package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelPipeline;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;

/**
 * The receiving half of a stream channel. Only {@link #returnedElsewhere} may be called on other threads than the loop's.
 *
 * <p>The native connection receives while Netty wants to read. What arrives when it does not is kept, in order, until the
 * next read, and the connection is paused: so a handler that reads message by message costs no pausing as long as its
 * peer answers message by message.
 */
final class Inbound implements LeaseHolder, EndOfRun, Runnable {
    private static final AtomicIntegerFieldUpdater<Inbound> RETURNED_ELSEWHERE =
            AtomicIntegerFieldUpdater.newUpdater(Inbound.class, "returnedElsewhere");

    private final AbstractQuoitStreamChannel channel;

    /** Data that came while nobody wanted to read. */
    private ArrayDeque<ByteBuf> held;
    /** The peer's end, and the connection's, wait behind {@link #held}. */
    private boolean endHeld;

    private Closed closeHeld;
    /** What is held is not kept for ever. */
    private boolean givingUp;

    private boolean readPending;
    /** A read has come through the pipeline since autoRead was off last: a handler may withhold those that autoRead makes. */
    private boolean hasRead;
    /** What the native connection was told last. */
    private boolean paused = true;
    /** The socket takes no more. */
    private boolean sendFailed;
    /** The place of an attach, and the batch that it is of; -1 if there is none. */
    private int attaching = -1;

    private int attachingBatch;

    private boolean delivering;
    private boolean deliveryAsked;
    /** Something was read since the last channelReadComplete. */
    private boolean incomplete;

    private int slotsOut;
    private int returnedHere;
    private volatile int returnedElsewhere;

    /** Why a connection is gone. */
    private record Closed(int reason, int error) {}

    Inbound(AbstractQuoitStreamChannel channel) {
        this.channel = channel;
    }

    // ---- slots of the pool that this channel's buffers hold ----

    @Override
    public int slotsHeld() {
        return slotsOut - returnedHere - returnedElsewhere;
    }

    @Override
    public void handedOut() {
        slotsOut++;
    }

    @Override
    public void returnedHere() {
        returnedHere++;
    }

    @Override
    public void returnedElsewhere() {
        RETURNED_ELSEWHERE.getAndIncrement(this);
    }

    // ---- what Netty asks for ----

    /** The connection is being attached, by the command at this place of the present batch. */
    void attaching(int at) {
        attaching = at;
        attachingBatch = channel.handler().commands().batch();
    }

    /** autoRead was turned off: what was asked for because of it is not wanted any more. */
    void clearRead() {
        readPending = false;
        hasRead = false;
    }

    void read() {
        readPending = true;
        hasRead = true;
        if (holds()) {
            askDelivery();
        } else {
            resume();
        }
    }

    /** Something was received, the end included, that waits to be read. */
    boolean holds() {
        return held != null && !held.isEmpty() || endHeld || closeHeld != null;
    }

    private boolean wanted() {
        return readPending || hasRead && channel.config().isAutoRead();
    }

    private void askDelivery() {
        // Inside of run() the loop looks again by itself.
        if (!delivering && !deliveryAsked) {
            deliveryAsked = true;
            channel.eventLoop().execute(this);
        }
    }

    private void resume() {
        if (!paused || channel.isInputShutdown()) {
            return;
        }
        long connection = channel.connection();
        if (connection != 0) {
            paused = false;
            channel.handler().commands().simple(Abi.COMMAND_RESUME, connection);
        } else if (attaching >= 0) {
            // Between the turn that takes it and the event that tells its id there is nothing to tell: opened() will.
            paused = !channel.handler().commands().attachReceiving(attaching, attachingBatch);
        }
    }

    private void pause() {
        if (!paused && channel.connection() != 0) {
            paused = true;
            channel.handler()
                    .commands()
                    .simple(sendFailed ? Abi.COMMAND_ABORT : Abi.COMMAND_PAUSE, channel.connection());
        }
    }

    /**
     * The socket takes no more. What comes is read, and the end behind it; a connection that is not read is ended now, as it
     * is by Netty's own transports, whose write fails: nobody would be told before the next read.
     */
    void sendFailed() {
        sendFailed = true;
        if (paused && channel.connection() != 0) {
            channel.handler().commands().simple(Abi.COMMAND_ABORT, channel.connection());
        }
    }

    /** The connection is open: reads that were asked for before may begin. */
    void opened() {
        attaching = -1;
        if (wanted()) {
            resume();
        }
    }

    // ---- what the loop reports ----

    void data(long address, int length, long lease) {
        QuoitIoHandler handler = channel.handler();
        if (!channel.isOpen() || channel.isInputShutdown()) {
            handler.leases().discard(lease);
            return;
        }
        ByteBuf bytes;
        try {
            bytes = handler.leases().take(address, length, lease, this, channel.alloc());
        } catch (Throwable failure) {
            lost(failure);
            return;
        }
        if (holds() || delivering || !wanted()) {
            hold(bytes);
        } else {
            deliver(bytes);
        }
    }

    /** Received bytes could not be handed on: a stream must not go on without them. */
    private void lost(Throwable failure) {
        channel.pipeline().fireExceptionCaught(failure);
        channel.unsafe().close(channel.unsafe().voidPromise());
    }

    private void hold(ByteBuf bytes) {
        if (held == null) {
            held = new ArrayDeque<>(4);
        }
        held.addLast(bytes);
        pause();
    }

    void ended() {
        if (!channel.isOpen()) {
            return;
        }
        if (held != null && !held.isEmpty() || delivering) {
            endHeld = true;
        } else {
            end();
        }
    }

    /** The connection is gone; returns false if that has to wait until what is held was read. */
    boolean closed(int reason, int error) {
        if (held != null && !held.isEmpty() || delivering) {
            closeHeld = new Closed(reason, error);
            giveUpLater();
            return false;
        }
        complete();
        return true;
    }

    /**
     * The connection is gone, and writes wait that will never leave: their handler may be one that reads only while the channel
     * is writable, and would wait for ever. So what is held waits to be read for no longer than the library waits in the same
     * case.
     */
    void giveUpLater() {
        if (closeHeld != null && !givingUp && channel.hasPendingWrites()) {
            givingUp = true;
            long nanos = channel.handler().config().closeDeadlineNanos();
            channel.eventLoop().schedule(this::giveUp, nanos, TimeUnit.NANOSECONDS);
        }
    }

    private void giveUp() {
        if (closeHeld != null) {
            tellClosed();
        }
    }

    private void tellClosed() {
        Closed closed = closeHeld;
        closeHeld = null;
        channel.gone(closed.reason(), closed.error());
    }

    // ---- delivery ----

    /** Delivers what is held, as a task of the loop. */
    @Override
    public void run() {
        deliveryAsked = false;
        if (delivering) {
            return;
        }
        delivering = true;
        try {
            while (held != null && !held.isEmpty() && channel.isOpen() && wanted()) {
                deliver(held.removeFirst());
            }
        } finally {
            delivering = false;
        }
        complete();
        if (!channel.isOpen() || held != null && !held.isEmpty()) {
            return;
        }
        if (endHeld) {
            endHeld = false;
            end();
        }
        if (closeHeld != null) {
            tellClosed();
        } else if (wanted()) {
            resume();
        }
    }

    /** Hands bytes to the pipeline. */
    private void deliver(ByteBuf bytes) {
        channel.metrics().received(bytes.readableBytes());
        try {
            begin();
            if (channel.readsIntoOwnBuffers()) {
                deliverInPieces(bytes);
                return;
            }
            var handle = channel.unsafe().recvBufAllocHandle();
            handle.attemptedBytesRead(bytes.readableBytes());
            handle.lastBytesRead(bytes.readableBytes());
            handle.incMessagesRead(1);
        } catch (Throwable failure) {
            // The user's allocator's, or that of its handle.
            bytes.release();
            lost(failure);
            return;
        }
        readPending = false;
        channel.pipeline().fireChannelRead(bytes);
    }

    private void begin() {
        if (!incomplete) {
            incomplete = true;
            channel.handler().atEndOfRun(this);
            channel.unsafe().recvBufAllocHandle().reset(channel.config());
        }
    }

    /**
     * As a transport does that reads into the buffers of the channel's allocator: one run of reads, as long as the
     * allocator's handle wants. What is left waits for the next.
     */
    private void deliverInPieces(ByteBuf bytes) {
        var handle = channel.unsafe().recvBufAllocHandle();
        ChannelPipeline pipeline = channel.pipeline();
        boolean before = delivering;
        delivering = true;
        try {
            do {
                ByteBuf piece = handle.allocate(channel.alloc());
                int length = Math.min(piece.writableBytes(), bytes.readableBytes());
                handle.attemptedBytesRead(piece.writableBytes());
                piece.writeBytes(bytes, length);
                handle.lastBytesRead(length);
                handle.incMessagesRead(1);
                readPending = false;
                pipeline.fireChannelRead(piece);
            } while (bytes.isReadable() && channel.isOpen() && handle.continueReading());
        } finally {
            delivering = before;
        }
        if (!bytes.isReadable() || !channel.isOpen()) {
            bytes.release();
            return;
        }
        if (held == null) {
            held = new ArrayDeque<>(4);
        }
        held.addFirst(bytes);
        pause();
        complete();
        if (wanted()) {
            askDelivery();
        }
    }

    @Override
    public void complete() {
        if (incomplete) {
            finishRead();
        }
    }

    private void finishRead() {
        incomplete = false;
        try {
            channel.unsafe().recvBufAllocHandle().readComplete();
        } catch (Throwable failure) {
            channel.pipeline().fireExceptionCaught(failure);
        }
        channel.pipeline().fireChannelReadComplete();
        hasRead = wanted();
    }

    private void end() {
        if (!incomplete) {
            // As elsewhere, where finding the end is a read of its own.
            channel.unsafe().recvBufAllocHandle().reset(channel.config());
        }
        finishRead();
        if (channel.isOpen()) {
            channel.inputEnded();
        }
    }

    /** The channel is closed: nobody reads what is held. */
    void release() {
        if (held != null) {
            for (ByteBuf bytes = held.pollFirst(); bytes != null; bytes = held.pollFirst()) {
                bytes.release();
            }
        }
        endHeld = false;
        closeHeld = null;
    }
}
