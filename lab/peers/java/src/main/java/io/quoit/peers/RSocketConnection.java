package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.CorruptedFrameException;
import java.util.concurrent.atomic.LongAdder;

/**
 * One end of a connection that carries RSocket frames over TCP (RSocket 1.0): a length of three bytes, the stream's id, six
 * bits of type and ten of flags. Requests for a stream or a response, payloads, credit and cancelling are there, metadata,
 * fragments, leases and resumption are not: they are RSocket's, and what is measured is the transport. A message costs no
 * memory on the heap: its buffer is pooled, and a frame is read where it lies.
 */
abstract class RSocketConnection extends ChannelInboundHandlerAdapter {
    static final int SETUP = 0x01;
    static final int KEEPALIVE = 0x03;
    static final int REQUEST_RESPONSE = 0x04;
    static final int REQUEST_STREAM = 0x06;
    static final int REQUEST_N = 0x08;
    static final int CANCEL = 0x09;
    static final int PAYLOAD = 0x0A;
    static final int ERROR = 0x0B;
    static final int METADATA_PUSH = 0x0C;

    static final int FLAG_NEXT = 0x20;
    static final int FLAG_COMPLETE = 0x40;
    static final int FLAG_RESPOND = 0x80;
    static final int FLAG_METADATA = 0x100;

    static final int LENGTH_BYTES = 3;
    /** A stream's id, the type and the flags. */
    static final int HEADER_BYTES = 6;
    /** What a message begins with: its number in the stream, and the stream's id. */
    static final int STAMP_BYTES = 8;

    static final int MOST_MESSAGE = 64 << 10;
    private static final int MOST_FRAME = HEADER_BYTES + 4 + MOST_MESSAGE;

    /** Room for the frames of most cases. */
    private static final int FIRST_REST = 256;

    private static final ByteBuf FILLING =
            PooledByteBufAllocator.DEFAULT.directBuffer(MOST_MESSAGE).writeZero(MOST_MESSAGE);

    private final LongAdder messages;
    private long counted;
    /** The beginning of a frame whose end has not come yet. */
    private ByteBuf rest;

    /** Counts messages there. */
    RSocketConnection(LongAdder messages) {
        this.messages = messages;
    }

    /** A message was sent or received. */
    final void count() {
        counted++;
    }

    /** Makes known what was counted. */
    final void publish() {
        if (counted > 0) {
            messages.add(counted);
            counted = 0;
        }
    }

    /** A frame came; its payload goes up to {@code end}. */
    abstract void frame(ChannelHandlerContext context, int id, int type, int flags, ByteBuf in, int end);

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        // It grows to what the frames are: ten thousand connections with room for the longest would be half a gigabyte.
        rest = context.alloc().directBuffer(FIRST_REST, LENGTH_BYTES + MOST_FRAME);
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        rest.release();
        rest = null;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        try {
            while (rest.isReadable() && in.isReadable()) {
                int wanted = rest.readableBytes() < LENGTH_BYTES ? LENGTH_BYTES : LENGTH_BYTES + length(rest);
                rest.writeBytes(in, Math.min(wanted - rest.readableBytes(), in.readableBytes()));
                if (rest.readableBytes() >= LENGTH_BYTES && rest.readableBytes() == LENGTH_BYTES + length(rest)) {
                    frame(context, rest);
                    rest.clear();
                }
            }
            while (in.readableBytes() >= LENGTH_BYTES && in.readableBytes() >= LENGTH_BYTES + length(in)) {
                frame(context, in);
            }
            rest.writeBytes(in);
        } finally {
            in.release();
        }
    }

    private static int length(ByteBuf in) {
        int length = in.getUnsignedMedium(in.readerIndex());
        if (length < HEADER_BYTES || length > MOST_FRAME) {
            throw new CorruptedFrameException("a frame of " + length + " bytes");
        }
        return length;
    }

    private void frame(ChannelHandlerContext context, ByteBuf in) {
        int end = in.readerIndex() + LENGTH_BYTES + length(in);
        in.skipBytes(LENGTH_BYTES);
        int id = in.readInt();
        int word = in.readUnsignedShort();
        frame(context, id, word >>> 10, word & 0x3FF, in, end);
        in.readerIndex(end);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        if (cause instanceof CorruptedFrameException || cause instanceof IllegalStateException) {
            System.err.println("rsocket: " + cause.getMessage());
        }
        context.close();
    }

    // ---- frames to send ----

    /** A buffer with a frame's beginning, and room for its payload. */
    static ByteBuf begin(ChannelHandlerContext context, int id, int type, int flags, int payload) {
        return context.alloc()
                .directBuffer(LENGTH_BYTES + HEADER_BYTES + payload)
                .writeMedium(HEADER_BYTES + payload)
                .writeInt(id)
                .writeShort(type << 10 | flags);
    }

    /** Pushed metadata: between the programs at both ends, and no part of a case. */
    static ByteBuf pushed(ChannelHandlerContext context, byte[] metadata) {
        return begin(context, 0, METADATA_PUSH, FLAG_METADATA, metadata.length).writeBytes(metadata);
    }

    /** A payload frame with a message. */
    static ByteBuf message(ChannelHandlerContext context, int id, int flags, int number, int size) {
        return begin(context, id, PAYLOAD, flags, size)
                .writeInt(number)
                .writeInt(id)
                .writeBytes(FILLING, 0, size - STAMP_BYTES);
    }

    /** Appends the filling of a message. */
    static void fill(ByteBuf frame, int bytes) {
        frame.writeBytes(FILLING, 0, bytes);
    }
}
