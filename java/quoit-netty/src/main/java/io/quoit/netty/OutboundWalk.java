package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Walks over what a stream channel has flushed, and measures it, copies it into the batch's staging memory, or lists its
 * pieces. One walk serves all channels of a loop: what it has found holds until the next one, which listeners' flushes may
 * begin. The loop's thread only.
 */
final class OutboundWalk implements ChannelOutboundBuffer.MessageProcessor {
    /** A flush of small messages is copied up to so many times the threshold of other flushes. */
    private static final int SMALL_MESSAGES_TIMES = 8;

    /** Messages are small if they have at most this part of the threshold each, on average: 512 bytes by default. */
    private static final int SMALL_MESSAGE_PART = 4;

    /** What is done with each message. */
    private enum Purpose {
        MEASURE,
        STAGE,
        LIST
    }

    private final CommandBatch commands;
    private final PieceLists pieceLists;
    private final int copyThreshold;
    /** What flushes of small messages may have to be copied: no more than the library takes at once. */
    private final int copyMost;

    private final int highWater;

    private Purpose purpose;
    /** How many bytes there may be. */
    private int limit;
    /** Where the first of them is staged. */
    private int stagedFrom;

    private int bytes;
    private int pieces;
    private boolean failed;

    OutboundWalk(CommandBatch commands, QuoitIoHandlerConfig config) {
        this.commands = commands;
        pieceLists = commands.pieces();
        copyThreshold = config.copyThreshold();
        highWater = config.highWater();
        copyMost = Math.min(SMALL_MESSAGES_TIMES * copyThreshold, highWater);
    }

    /** What a connection may have copied in one turn. */
    int copyMost() {
        return copyMost;
    }

    /** Of the messages that were measured or staged last. */
    int bytes() {
        return bytes;
    }

    /** Those of these messages that are not empty. */
    int pieces() {
        return pieces;
    }

    /** Measures all that is flushed; returns whether it is to be copied, being little, or not much and in small messages. */
    boolean isToBeCopied(ChannelOutboundBuffer flushed) throws IOException {
        // Mostly, the first message alone tells.
        if (!(flushed.current() instanceof ByteBuf first) || first.readableBytes() > copyThreshold) {
            return false;
        }
        return walk(flushed, Purpose.MEASURE, copyMost)
                && (bytes <= copyThreshold || bytes <= pieces * (copyThreshold / SMALL_MESSAGE_PART));
    }

    /**
     * Copies all that is flushed to an offset in the staging memory; returns false if it is more than {@code most} bytes, or
     * not all of it is bytes.
     */
    boolean stage(ChannelOutboundBuffer flushed, int offset, int most) throws IOException {
        stagedFrom = offset;
        return walk(flushed, Purpose.STAGE, most);
    }

    /** Begins a list, of the pieces of all that is flushed, up to the high-water mark, a file or a full list. */
    void list(ChannelOutboundBuffer flushed) throws IOException {
        pieceLists.begin();
        walk(flushed, Purpose.LIST, highWater);
    }

    /** Returns whether all messages were walked over that were to be. */
    private boolean walk(ChannelOutboundBuffer flushed, Purpose purpose, int limit) throws IOException {
        this.purpose = purpose;
        this.limit = limit;
        bytes = 0;
        pieces = 0;
        failed = false;
        try {
            flushed.forEachFlushedMessage(this);
        } catch (RuntimeException failure) {
            // As it is, such as of a buffer that was released too early: Netty does not take it for a broken connection.
            throw failure;
        } catch (Exception failure) {
            throw new IOException("a message could not be sent", failure);
        }
        return !failed;
    }

    @Override
    public boolean processMessage(Object message) throws Exception {
        if (!(message instanceof ByteBuf buffer)) {
            failed = true;
            return false;
        }
        int length = buffer.readableBytes();
        if (purpose == Purpose.LIST) {
            // The limit may be passed once: it is not the library's memory.
            if (bytes >= limit || pieceLists.isFull()) {
                return false;
            }
        } else if (length > limit - bytes) {
            failed = true;
            return false;
        }
        if (length > 0) {
            switch (purpose) {
                case MEASURE -> pieces++;
                case STAGE -> {
                    stage(buffer, stagedFrom + bytes, length);
                    pieces++;
                }
                // What of a message has no room is listed later.
                case LIST -> pieceLists.add(buffer);
            }
        }
        bytes += length;
        return true;
    }

    private void stage(ByteBuf buffer, int at, int length) {
        if (buffer.hasMemoryAddress()) {
            // Also spares the view that a pooled buffer would make for this.
            commands.stage(at, buffer.memoryAddress() + buffer.readerIndex(), length);
            return;
        }
        ByteBuffer staging = commands.staging();
        if (buffer.nioBufferCount() == 1) {
            // The buffer's own view: any other would be made for this.
            ByteBuffer source = buffer.internalNioBuffer(buffer.readerIndex(), length);
            staging.put(at, source, source.position(), length);
        } else {
            staging.limit(at + length).position(at);
            try {
                buffer.getBytes(buffer.readerIndex(), staging);
            } finally {
                // All connections of the loop use it.
                staging.clear();
            }
        }
    }
}
