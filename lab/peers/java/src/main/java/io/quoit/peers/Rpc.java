package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.CorruptedFrameException;
import io.netty.util.collection.IntObjectHashMap;
import io.netty.util.collection.LongObjectHashMap;
import io.netty.util.concurrent.Future;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;

/** Streams of messages with credit, as docs/rpc.md has them. One connection. */
final class Rpc extends ByteToMessageDecoder {
    private static final int HEADER_BYTES = 9;
    private static final int LEAST_LENGTH = 5;
    private static final int MOST_LENGTH = 16 << 20;
    private static final int LEAST_SIZE = 24;
    private static final long MOST_CREDIT = 0xFFFF_FFFFL;
    private static final int MOST_PERIODS = 16;
    /** Streams of a connection: as many as the lab's loads open. */
    private static final int MOST_STREAMS = 1024;
    private static final long LEAST_PERIOD_NANOS = 1_000_000;

    private static final int OPEN_RESPONSE = 1;
    private static final int OPEN_REQUEST = 2;
    private static final int CREDIT = 3;
    private static final int CANCEL = 4;
    private static final int MESSAGE = 5;
    private static final int END = 6;
    private static final int ERROR = 7;

    private static final int MALFORMED = 1;
    private static final int PROTOCOL = 2;
    private static final int INVALID = 3;
    private static final int LIMIT = 4;

    /** Messages of one stream before it is another's turn. */
    private static final int TURN = 16;

    private static final int CYCLE = 251;
    /** The content's pattern, from any of its places on. */
    private static final byte[] PATTERN = new byte[CYCLE * 262];

    static {
        for (int at = 0; at < PATTERN.length; at++) {
            PATTERN[at] = (byte) (at % CYCLE);
        }
    }

    private final IntObjectHashMap<Stream> streams = new IntObjectHashMap<>();
    private final LongObjectHashMap<Clock> clocks = new LongObjectHashMap<>();
    /** Streams that have something to send, each once. */
    private final ArrayDeque<Stream> ready = new ArrayDeque<>();

    private boolean broken;

    private static final class Stream {
        final int id;
        final long tag;
        final long messages;
        final int size;
        final boolean request;
        long number;
        long credit;
        long due;
        boolean timed;
        int batch;
        boolean queued;
        boolean cancelled;
        Clock clock;
        CRC32 checksum;

        Stream(int id, long tag, long messages, int size, boolean request) {
            this.id = id;
            this.tag = tag;
            this.messages = messages;
            this.size = size;
            this.request = request;
        }

        boolean sends() {
            return cancelled || number == messages && messages != 0 || credit > 0 && number < due;
        }
    }

    /** What the streams of a connection with one period share. */
    private static final class Clock {
        final List<Stream> streams = new ArrayList<>();
        Future<?> ticks;
        long at;
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        if (broken) {
            in.skipBytes(in.readableBytes());
            return;
        }
        if (in.readableBytes() < 4) {
            return;
        }
        long length = in.getUnsignedInt(in.readerIndex());
        if (length < LEAST_LENGTH || length > MOST_LENGTH) {
            fail(context, MALFORMED, "a frame of " + length + " bytes");
            return;
        }
        if (in.readableBytes() < 4 + length) {
            return;
        }
        in.skipBytes(4);
        int id = in.readInt();
        int kind = in.readUnsignedByte();
        ByteBuf payload = in.readSlice((int) length - LEAST_LENGTH);
        try {
            frame(context, id, kind, payload);
        } catch (IndexOutOfBoundsException shorter) {
            fail(context, MALFORMED, "a payload that is too short");
        } catch (CorruptedFrameException wrong) {
            fail(context, MALFORMED, wrong.getMessage());
        }
    }

    private void frame(ChannelHandlerContext context, int id, int kind, ByteBuf payload) {
        if (kind < OPEN_RESPONSE || kind > ERROR) {
            throw new CorruptedFrameException("a frame of kind " + kind);
        }
        if (id == 0 || kind == END || kind == ERROR) {
            fail(context, PROTOCOL, "kind " + kind + " on stream " + Integer.toUnsignedString(id));
            return;
        }
        Stream stream = streams.get(id);
        switch (kind) {
            case OPEN_RESPONSE, OPEN_REQUEST -> {
                if (stream != null) {
                    fail(context, PROTOCOL, "stream " + Integer.toUnsignedString(id) + " is open already");
                } else {
                    open(context, id, kind == OPEN_REQUEST, payload);
                }
            }
            case CREDIT -> {
                long more = payload.readUnsignedInt();
                exact(payload);
                if (more == 0) {
                    throw new CorruptedFrameException("no credit");
                }
                if (stream != null && stream.request) {
                    fail(context, PROTOCOL, "credit for a request");
                } else if (stream != null) {
                    stream.credit = Math.min(MOST_CREDIT, stream.credit + more);
                    queue(stream);
                }
            }
            case CANCEL -> {
                exact(payload);
                if (stream != null) {
                    stream.cancelled = true;
                    queue(stream);
                }
            }
            default -> message(context, stream, payload);
        }
    }

    private static void exact(ByteBuf payload) {
        if (payload.isReadable()) {
            throw new CorruptedFrameException("a payload that is too long");
        }
    }

    private void open(ChannelHandlerContext context, int id, boolean request, ByteBuf payload) {
        int flags = payload.readUnsignedByte();
        long tag = payload.readUnsignedInt();
        long messages = payload.readLong();
        long size = payload.readUnsignedInt();
        if (flags > (request ? 0 : 1)) {
            throw new CorruptedFrameException("flags " + flags);
        }
        if (size < LEAST_SIZE || size > MOST_LENGTH - LEAST_LENGTH || request && messages == 0) {
            refuse(context, id, INVALID, "size " + size + ", messages " + messages);
            return;
        }
        if (streams.size() == MOST_STREAMS) {
            refuse(context, id, LIMIT, "more than " + MOST_STREAMS + " streams");
            return;
        }
        Stream stream = new Stream(id, tag, messages, (int) size, request);
        stream.due = messages == 0 ? Long.MAX_VALUE : messages;
        if (request) {
            exact(payload);
            stream.checksum = new CRC32();
            streams.put(id, stream);
            return;
        }
        stream.timed = flags == 1;
        stream.credit = payload.readUnsignedInt();
        stream.batch = payload.readInt();
        long period = payload.readLong();
        exact(payload);
        if ((stream.batch == 0) != (period == 0) || period != 0 && period < LEAST_PERIOD_NANOS) {
            refuse(context, id, INVALID, "batch " + stream.batch + ", period " + period);
            return;
        }
        if (period != 0) {
            Clock clock = clocks.get(period);
            if (clock == null) {
                if (clocks.size() == MOST_PERIODS) {
                    refuse(context, id, LIMIT, "more than " + MOST_PERIODS + " periods");
                    return;
                }
                clock = start(context, period);
            }
            stream.due = 0;
            stream.clock = clock;
            clock.streams.add(stream);
        }
        streams.put(id, stream);
        queue(stream);
    }

    private Clock start(ChannelHandlerContext context, long period) {
        Clock clock = new Clock();
        clock.at = System.nanoTime();
        clocks.put(period, clock);
        clock.ticks = context.executor().scheduleAtFixedRate(
                () -> {
                    clock.at += period;
                    for (Stream stream : clock.streams) {
                        long most = stream.messages == 0 ? Long.MAX_VALUE : stream.messages;
                        stream.due = Math.min(most, stream.due + Integer.toUnsignedLong(stream.batch));
                        queue(stream);
                    }
                    send(context);
                },
                period, period, TimeUnit.NANOSECONDS);
        return clock;
    }

    private void message(ChannelHandlerContext context, Stream stream, ByteBuf content) {
        if (stream == null || stream.cancelled) {
            return;
        }
        if (!stream.request || content.readableBytes() != stream.size) {
            fail(context, PROTOCOL, "a message of " + content.readableBytes() + " bytes");
            return;
        }
        stream.checksum.update(content.nioBuffer());
        if (++stream.number == stream.messages) {
            queue(stream);
        }
    }

    private void queue(Stream stream) {
        if (!stream.queued && stream.sends()) {
            stream.queued = true;
            ready.addLast(stream);
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) throws Exception {
        send(context);
        super.channelReadComplete(context);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) throws Exception {
        send(context);
        super.channelWritabilityChanged(context);
    }

    /** Sends what is due, stream by stream, as long as the channel wants more. */
    private void send(ChannelHandlerContext context) {
        boolean any = false;
        while (!ready.isEmpty() && !broken && context.channel().isWritable()) {
            Stream stream = ready.pollFirst();
            stream.queued = false;
            any = true;
            ByteBuf frames = context.alloc().directBuffer(HEADER_BYTES + stream.size);
            for (int turn = 0; turn < TURN && canSend(stream); turn++) {
                append(stream, frames);
            }
            if (stream.cancelled || stream.messages != 0 && stream.number == stream.messages) {
                end(stream, frames);
            }
            context.write(frames, context.voidPromise());
            if (streams.get(stream.id) == stream) {
                queue(stream);
            }
        }
        if (any) {
            context.flush();
        }
    }

    private static boolean canSend(Stream stream) {
        return !stream.request && !stream.cancelled && stream.credit > 0 && stream.number < stream.due;
    }

    private static void header(ByteBuf frames, int payload, int id, int kind) {
        frames.writeInt(LEAST_LENGTH + payload).writeInt(id).writeByte(kind);
    }

    private static void append(Stream stream, ByteBuf frames) {
        header(frames, stream.size, stream.id, MESSAGE);
        frames.writeLong(stream.number).writeInt(stream.id).writeInt((int) stream.tag);
        long now = stream.clock == null ? System.nanoTime() : stream.clock.at;
        frames.writeLong(stream.timed ? now : 0);
        long sum = Long.remainderUnsigned(stream.number, CYCLE) + Integer.toUnsignedLong(stream.id) + stream.tag;
        int at = (int) ((sum + LEAST_SIZE) % CYCLE);
        int left = stream.size - LEAST_SIZE;
        while (left > 0) {
            // A whole number of cycles, so that the next part begins at the same place.
            int part = Math.min(left, PATTERN.length - CYCLE);
            frames.writeBytes(PATTERN, at, part);
            left -= part;
        }
        stream.number++;
        stream.credit--;
    }

    private void end(Stream stream, ByteBuf frames) {
        header(frames, 12, stream.id, END);
        frames.writeLong(stream.number)
                .writeInt(stream.checksum == null ? 0 : (int) stream.checksum.getValue());
        streams.remove(stream.id);
        if (stream.clock != null) {
            stream.clock.streams.remove(stream);
        }
    }

    private void refuse(ChannelHandlerContext context, int id, int code, String text) {
        if (!context.channel().isWritable()) {
            // Each of its next requests, some dozen bytes, would be a longer frame that it does not read either.
            fail(context, LIMIT, "more is refused than is read");
            return;
        }
        context.writeAndFlush(error(context, id, code, text));
    }

    private void fail(ChannelHandlerContext context, int code, String text) {
        broken = true;
        context.writeAndFlush(error(context, 0, code, text)).addListener(ChannelFutureListener.CLOSE);
    }

    private static ByteBuf error(ChannelHandlerContext context, int id, int code, String text) {
        byte[] words = text.getBytes(StandardCharsets.UTF_8);
        ByteBuf frame = context.alloc().directBuffer();
        header(frame, 4 + words.length, id, ERROR);
        return frame.writeInt(code).writeBytes(words);
    }

    @Override
    protected void handlerRemoved0(ChannelHandlerContext context) {
        clocks.values().forEach(clock -> clock.ticks.cancel(false));
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
