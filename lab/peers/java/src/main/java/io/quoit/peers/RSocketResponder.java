package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.CorruptedFrameException;
import io.netty.util.collection.IntObjectHashMap;
import io.netty.util.concurrent.EventExecutor;
import io.netty.util.concurrent.Future;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BiConsumer;

/**
 * The serving end. What a stream is asked for stands in its request's data: messages (0: without end), bytes of each,
 * messages a tick, milliseconds from tick to tick (0: without a pace), and the ticks' phase in that period. A request for a response is answered by a message of
 * as many bytes as it has. The first byte of pushed metadata is a word to the program.
 */
final class RSocketResponder extends RSocketConnection {
    /** Bytes of a request's data. */
    static final int REQUEST_BYTES = 24;

    /** Streams of a connection: as many as the lab's loads open. */
    private static final int MOST_STREAMS = 1024;

    /** Messages of one stream before it is another's turn. */
    private static final int TURN = 16;

    private final BiConsumer<ChannelHandlerContext, Byte> words;
    private final IntObjectHashMap<Stream> streams = new IntObjectHashMap<>();
    /** Streams that have something to send, each once. */
    private final ArrayDeque<Stream> ready = new ArrayDeque<>();

    private final ArrayDeque<Stream> spare = new ArrayDeque<>();
    private final IntObjectHashMap<Clock> clocks = new IntObjectHashMap<>();
    private boolean wrote;

    private static final class Stream {
        int id;
        int messages;
        int size;
        int batch;
        int number;
        long credit;
        long due;
        boolean queued;
        boolean open;

        boolean sends() {
            return open && credit > 0 && number < due;
        }
    }

    /**
     * What the streams of one period share. It ticks at the phase that the first of them asks for, and not when that one comes: a virtual
     * machine that is cold reads the requests of many connections one behind the other, and their ticks would come together for good.
     */
    private static final class Clock {
        final ArrayList<Stream> streams = new ArrayList<>();
        Future<?> ticks;
    }

    RSocketResponder(LongAdder messages, BiConsumer<ChannelHandlerContext, Byte> words) {
        super(messages);
        this.words = words;
    }

    @Override
    void frame(ChannelHandlerContext context, int id, int type, int flags, ByteBuf in, int end) {
        switch (type) {
            case SETUP -> {}
            case KEEPALIVE -> {
                if ((flags & FLAG_RESPOND) != 0) {
                    context.write(begin(context, 0, KEEPALIVE, 0, 8).writeLong(0), context.voidPromise());
                    wrote = true;
                }
            }
            case REQUEST_STREAM -> open(context, id, in, end);
            case REQUEST_RESPONSE -> {
                int size = Math.max(STAMP_BYTES, end - in.readerIndex());
                context.write(message(context, id, FLAG_NEXT | FLAG_COMPLETE, 0, size), context.voidPromise());
                count();
                wrote = true;
                if (!context.channel().isWritable()) {
                    // It does not read what it is answered.
                    context.channel().config().setAutoRead(false);
                }
            }
            case REQUEST_N -> {
                Stream stream = streams.get(id);
                if (stream != null) {
                    stream.credit += Integer.toUnsignedLong(in.readInt());
                    queue(stream);
                }
            }
            case CANCEL -> {
                Stream stream = streams.get(id);
                if (stream != null) {
                    close(stream);
                }
            }
            case METADATA_PUSH -> words.accept(context, in.readByte());
            default -> throw new CorruptedFrameException("a frame of type " + type);
        }
    }

    private void open(ChannelHandlerContext context, int id, ByteBuf in, int end) {
        if (streams.size() == MOST_STREAMS) {
            throw new CorruptedFrameException("more than " + MOST_STREAMS + " streams");
        }
        if (streams.containsKey(id) || end - in.readerIndex() != 4 + REQUEST_BYTES) {
            throw new CorruptedFrameException("a request on stream " + id);
        }
        Stream stream = spare.isEmpty() ? new Stream() : spare.pollLast();
        stream.id = id;
        stream.number = 0;
        stream.open = true;
        stream.credit = Integer.toUnsignedLong(in.readInt());
        stream.messages = in.readInt();
        stream.size = in.readInt();
        stream.batch = in.readInt();
        int period = in.readInt();
        long phase = in.readLong();
        if (stream.size < STAMP_BYTES || stream.size > MOST_MESSAGE) {
            throw new CorruptedFrameException("messages of " + stream.size + " bytes");
        }
        stream.due = 0;
        if (period == 0) {
            stream.due = stream.messages == 0 ? Long.MAX_VALUE : stream.messages;
        } else {
            clock(context, period, phase).streams.add(stream);
        }
        streams.put(id, stream);
        queue(stream);
    }

    private Clock clock(ChannelHandlerContext context, int periodMillis, long phase) {
        Clock clock = clocks.get(periodMillis);
        if (clock == null) {
            Clock made = new Clock();
            clocks.put(periodMillis, made);
            EventExecutor loop = context.executor();
            long period = TimeUnit.MILLISECONDS.toNanos(periodMillis);
            // The first tick from now on: a period begins whenever the clock shows a multiple of it.
            long first = Math.floorMod(phase - loop.ticker().nanoTime(), period);
            made.ticks = loop.scheduleAtFixedRate(() -> tick(context, made), first, period, TimeUnit.NANOSECONDS);
            clock = made;
        }
        return clock;
    }

    private void tick(ChannelHandlerContext context, Clock clock) {
        ArrayList<Stream> timed = clock.streams;
        int kept = 0;
        for (int at = 0; at < timed.size(); at++) {
            Stream stream = timed.get(at);
            if (!stream.open) {
                // Only now may it be used again.
                spare.addLast(stream);
                continue;
            }
            timed.set(kept++, stream);
            stream.due += stream.batch;
            if (stream.messages != 0) {
                stream.due = Math.min(stream.due, stream.messages);
            }
            queue(stream);
        }
        while (timed.size() > kept) {
            timed.remove(timed.size() - 1);
        }
        send(context);
    }

    private void queue(Stream stream) {
        if (!stream.queued && stream.sends()) {
            stream.queued = true;
            ready.addLast(stream);
        }
    }

    private void close(Stream stream) {
        stream.open = false;
        streams.remove(stream.id);
        if (stream.batch == 0 && !stream.queued) {
            spare.addLast(stream);
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        send(context);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (context.channel().isWritable()) {
            context.channel().config().setAutoRead(true);
        }
        send(context);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        clocks.values().forEach(clock -> clock.ticks.cancel(false));
        clocks.clear();
        ready.clear();
        context.fireChannelInactive();
    }

    /** Sends what is due, stream by stream, each message by itself, as long as the channel wants more; then flushes. */
    private void send(ChannelHandlerContext context) {
        while (!ready.isEmpty() && context.channel().isWritable()) {
            Stream stream = ready.pollFirst();
            stream.queued = false;
            if (!stream.open && stream.batch == 0) {
                // Cancelled while it waited.
                spare.addLast(stream);
                continue;
            }
            for (int turn = 0; turn < TURN && stream.sends(); turn++) {
                int number = stream.number++;
                stream.credit--;
                boolean last = stream.number == stream.messages;
                int flags = last ? FLAG_NEXT | FLAG_COMPLETE : FLAG_NEXT;
                context.write(message(context, stream.id, flags, number, stream.size), context.voidPromise());
                count();
                wrote = true;
                if (last) {
                    close(stream);
                }
            }
            queue(stream);
        }
        publish();
        if (wrote) {
            wrote = false;
            context.flush();
        }
    }
}
