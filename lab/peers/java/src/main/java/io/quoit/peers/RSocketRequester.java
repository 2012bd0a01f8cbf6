package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.CorruptedFrameException;
import io.netty.util.collection.IntObjectHashMap;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.LongAdder;

/**
 * The asking end: keeps so many streams open, each opened again when it ends, and grants credit when half of a window was
 * used. It checks that every message is the next one of its stream, and as long as asked for.
 */
final class RSocketRequester extends RSocketConnection {
    private static final byte[] MIME = "application/octet-stream".getBytes(StandardCharsets.US_ASCII);
    private static final int KEEPALIVE_MILLIS = 3_600_000;

    private final RSocketCase load;
    private final IntObjectHashMap<Stream> streams = new IntObjectHashMap<>();
    private final long phase;
    private int nextId = 1;
    private boolean wrote;
    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    private volatile Throwable failure;

    private static final class Stream {
        int id;
        int number;
        int used;
    }

    /**
     * Asks for its streams when its connection was made.
     *
     * @param phase of their ticks in the period, in nanoseconds
     */
    RSocketRequester(LongAdder messages, RSocketCase load, long phase) {
        super(messages);
        this.load = load;
        this.phase = phase;
    }

    /** Why the connection has failed; null if it has not. */
    Throwable failure() {
        return failure;
    }

    /** What the program at the other end tells. */
    BlockingQueue<String> told() {
        return told;
    }

    @Override
    public void channelActive(ChannelHandlerContext context) {
        context.write(
                begin(context, 0, SETUP, 0, 14 + 2 * MIME.length)
                        .writeShort(1)
                        .writeShort(0)
                        .writeInt(KEEPALIVE_MILLIS)
                        .writeInt(KEEPALIVE_MILLIS)
                        .writeByte(MIME.length)
                        .writeBytes(MIME)
                        .writeByte(MIME.length)
                        .writeBytes(MIME),
                context.voidPromise());
        for (int stream = 0; stream < load.streams(); stream++) {
            ask(context, new Stream());
        }
        context.flush();
    }

    private void ask(ChannelHandlerContext context, Stream stream) {
        stream.id = nextId;
        stream.number = 0;
        stream.used = 0;
        nextId += 2;
        if (nextId < 0) {
            throw new IllegalStateException("the ids of a connection are used up");
        }
        streams.put(stream.id, stream);
        ByteBuf request;
        if (load.response()) {
            request = begin(context, stream.id, REQUEST_RESPONSE, 0, load.size());
            fill(request, load.size());
        } else {
            request = begin(context, stream.id, REQUEST_STREAM, 0, 4 + RSocketResponder.REQUEST_BYTES)
                    .writeInt(load.window())
                    .writeInt(load.messages())
                    .writeInt(load.size())
                    .writeInt(load.batch())
                    .writeInt(load.periodMillis())
                    .writeLong(phase);
        }
        context.write(request, context.voidPromise());
        wrote = true;
    }

    @Override
    void frame(ChannelHandlerContext context, int id, int type, int flags, ByteBuf in, int end) {
        if (type == METADATA_PUSH) {
            told.add(in.toString(in.readerIndex(), end - in.readerIndex(), StandardCharsets.US_ASCII));
            return;
        }
        if (type != PAYLOAD) {
            throw new CorruptedFrameException("a frame of type " + type);
        }
        Stream stream = streams.get(id);
        int size = end - in.readerIndex();
        if (stream == null || size != load.size() || in.readInt() != stream.number || in.readInt() != id) {
            throw new CorruptedFrameException("a message of stream " + id + " that was not due");
        }
        stream.number++;
        count();
        if ((flags & FLAG_COMPLETE) != 0) {
            if (!load.response() && stream.number != load.messages()) {
                throw new CorruptedFrameException("an end after " + stream.number + " messages");
            }
            streams.remove(id);
            ask(context, stream);
        } else if (++stream.used >= (load.window() + 1) / 2) {
            context.write(begin(context, id, REQUEST_N, 0, 4).writeInt(stream.used), context.voidPromise());
            stream.used = 0;
            wrote = true;
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        publish();
        if (wrote) {
            wrote = false;
            context.flush();
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        failure = cause;
        super.exceptionCaught(context, cause);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        if (failure == null) {
            failure = new IllegalStateException("the connection was closed");
        }
        context.fireChannelInactive();
    }
}
