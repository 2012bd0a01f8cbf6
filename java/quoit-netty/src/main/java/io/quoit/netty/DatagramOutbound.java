package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.unix.SegmentedDatagramPacket;
import io.netty.util.ReferenceCountUtil;
import io.quoit.netty.Abi.DatagramSend;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.NotYetConnectedException;
import java.util.ArrayList;

/**
 * The sending half of a datagram channel; the loop's thread only.
 *
 * <p>What is flushed goes to the library as one command, and its memory is lent: each message leaves the outbound buffer
 * when the library tells its own outcome. One such batch is under way at a time, so that the library has room for all of
 * it; what is flushed meanwhile leaves together afterwards.
 */
final class DatagramOutbound implements ChannelOutboundBuffer.MessageProcessor {
    /** The most sends of a batch, which is what the library's queue has room for. */
    static final int MOST_SENDS = 512;

    private static final int FIRST_SENDS = 16;
    private static final int SEND_BYTES = DatagramSend.STRUCT_SIZE;
    private static final int PEER_BYTES = 32;

    /** The token of commands; those of sends are positive. */
    private static final long COMMAND_TOKEN = Long.MIN_VALUE;

    private final QuoitDatagramChannel channel;

    private ChannelOutboundBuffer buffer;
    /** The sends of a batch, and the addresses that they are for. */
    private ByteBuffer sends = room(FIRST_SENDS * SEND_BYTES);

    private ByteBuffer peers = room(FIRST_SENDS * PEER_BYTES);

    /** Sends of the batch, and how many of them have left the outbound buffer. */
    private int count;

    private int done;
    private int bytes;
    /** When the batch was given to the loop, by {@link System#nanoTime()}. */
    private long lentAt;
    /** The token of the batch's first send. */
    private long firstToken = 1;
    /** What became of each send; {@link #UNKNOWN} until that is told. */
    private final ArrayList<Object> outcomes = new ArrayList<>();

    private static final Object UNKNOWN = new Object();
    private static final Object SENT = new Object();

    /** In flight though Netty has let go of them. */
    private ArrayList<Object> orphans;

    /** Why the last message that was looked at cannot be sent. */
    private Exception unsendable;

    private boolean removing;
    private boolean ended;
    /** A walk has ended at what the library has no room for. */
    private boolean full;

    DatagramOutbound(QuoitDatagramChannel channel) {
        this.channel = channel;
    }

    /** Whether memory of Java's is in the library's hands. */
    boolean lends() {
        return done < count;
    }

    /** Sends what is flushed, unless a batch is under way. */
    void write(ChannelOutboundBuffer flushed) throws IOException {
        buffer = flushed;
        if (lends() || removing || ended || channel.socket() == 0) {
            return;
        }
        begin();
        while (!ended && !list(flushed)) {
            if (count > 0) {
                // It fails behind those before it.
                break;
            }
            flushed.remove(unsendable);
        }
        if (count == 0 || ended) {
            return;
        }
        lentAt = System.nanoTime();
        lend(0, bytes);
    }

    private void begin() {
        firstToken += count;
        count = 0;
        done = 0;
        bytes = 0;
        outcomes.clear();
    }

    /** Gives the loop the batch's sends from one on, which are so many bytes. */
    private void lend(int from, int length) {
        long to = NativeLoader.library().address(peers);
        for (int send = from; send < count; send++) {
            sends.putLong(send * SEND_BYTES + DatagramSend.TO, to + send * PEER_BYTES);
        }
        CommandBatch commands = channel.handler().commands();
        // A batch that grows has other memory from then on.
        commands.keep(sends);
        commands.keep(peers);
        long at = NativeLoader.library().address(sends) + from * SEND_BYTES;
        commands.sendDatagrams(channel.socket(), at, count - from, COMMAND_TOKEN);
        channel.metrics().wrote(length, count - from);
        channel.handler().metrics().wrote(length, count - from);
    }

    /** Lists what is flushed; false if that ended at a message that cannot be sent, which is then the first or behind them. */
    private boolean list(ChannelOutboundBuffer flushed) {
        removeCancelled();
        try {
            flushed.forEachFlushedMessage(this);
            return true;
        } catch (Exception failure) {
            unsendable = failure;
            return false;
        }
    }

    /**
     * Lets go of writes at the head that were cancelled before their flush: a walk passes over them, but the buffer counts
     * them, with {@link Unpooled#EMPTY_BUFFER} for a message. The channel takes no such message from anyone else.
     */
    private void removeCancelled() {
        while (buffer.current() == Unpooled.EMPTY_BUFFER) {
            buffer.remove();
        }
    }

    @Override
    public boolean processMessage(Object message) {
        full = count == MOST_SENDS || bytes >= channel.handler().config().highWater();
        if (full) {
            return false;
        }
        ByteBuf content;
        InetSocketAddress to;
        int segment = 0;
        if (message instanceof DatagramPacket packet) {
            content = packet.content();
            to = packet.recipient();
            if (packet instanceof SegmentedDatagramPacket segmented) {
                segment = segmented.segmentSize();
            }
        } else {
            content = (ByteBuf) message;
            to = channel.remoteAddress();
            if (to == null) {
                throw new NotYetConnectedException();
            }
        }
        put(content, to, segment);
        return true;
    }

    private void put(ByteBuf content, InetSocketAddress to, int segment) {
        int at = count * SEND_BYTES;
        if (at == sends.capacity()) {
            sends = room(2 * at).put(0, sends, 0, at);
            peers = room(2 * count * PEER_BYTES).put(0, peers, 0, count * PEER_BYTES);
        }
        int length = content.readableBytes();
        sends.putLong(at + DatagramSend.DATA, length == 0 ? 0 : address(content, length));
        sends.putInt(at + DatagramSend.LENGTH, length);
        sends.putShort(at + DatagramSend.FLAGS, (short) Abi.FLAG_BORROWED);
        // What one segment has room for is cut nowhere; a larger size would not fit into the field.
        sends.putShort(at + DatagramSend.SEGMENT_SIZE, (short) (segment < length ? segment : 0));
        sends.putLong(at + DatagramSend.TOKEN, firstToken + count);
        // Without an address here, the kernel's own idea of the peer would decide; it is the same one.
        sends.putInt(at + DatagramSend.TO_LENGTH, Addresses.write(to, peers, count * PEER_BYTES));
        outcomes.add(UNKNOWN);
        count++;
        bytes += length;
    }

    private static long address(ByteBuf content, int length) {
        if (content.hasMemoryAddress()) {
            return content.memoryAddress() + content.readerIndex();
        }
        ByteBuffer part = content.internalNioBuffer(content.readerIndex(), length);
        return NativeLoader.library().address(part) + part.position();
    }

    /** Zeroed, as the library wants what is not written. */
    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    // ---- what the loop reports ----

    /** The outcome of the send with a token. */
    void sent(long token, int error) {
        outcome(token, error == 0 ? SENT : Errno.datagramFailure(error));
    }

    /** The library has not taken the send with a token, or the whole command. */
    void refused(long token, int reason, int error) {
        IOException cause = Errno.datagramRefusal(reason, error);
        if (token != COMMAND_TOKEN) {
            outcome(token, cause);
            return;
        }
        long first = firstToken;
        // Behind the last of them the next batch begins.
        for (int send = 0, all = count; send < all; send++) {
            outcome(first + send, cause);
        }
    }

    private void outcome(long token, Object outcome) {
        long send = token - firstToken;
        if (send < 0 || send >= count) {
            return;
        }
        outcomes.set((int) send, outcome);
        if (!lends()) {
            return;
        }
        removing = true;
        try {
            // They mostly come in the order of the sends, but need not; Netty lets go of the first one only.
            while (done < count && outcomes.get(done) != UNKNOWN) {
                Object first = outcomes.get(done++);
                if (orphans != null) {
                    continue;
                }
                removeCancelled();
                if (first == SENT) {
                    buffer.remove();
                } else {
                    buffer.remove((IOException) first);
                }
            }
        } finally {
            removing = false;
        }
        if (lends()) {
            return;
        }
        long nanos = System.nanoTime() - lentAt;
        channel.metrics().flushed(nanos);
        channel.handler().metrics().flushed(nanos);
        releaseOrphans();
        if (!ended) {
            channel.flushMore();
        } else if (full) {
            lendRest();
        }
    }

    // ---- the end ----

    /**
     * The channel is being closed. What was flushed and is not in flight joins what is, as far as the library has room, and the
     * rest follows: other transports have given that to the kernel by then. Until the socket is gone outcomes are told as
     * before.
     */
    void end() {
        if (ended) {
            return;
        }
        ended = true;
        if (buffer == null || buffer.isEmpty() || channel.socket() == 0) {
            return;
        }
        if (!lends()) {
            begin();
        }
        int from = count;
        int before = bytes;
        int[] flying = {count - done};
        full = false;
        try {
            buffer.forEachFlushedMessage(message -> flying[0]-- > 0 || processMessage(message));
        } catch (Exception unsendable) {
            // What is to leave ends there: its promise fails in any case, as those of all others do.
        }
        if (count > from) {
            lend(from, bytes - before);
        }
    }

    /** Whether something of what was flushed before the end has yet to be given to the library: then the socket stays. */
    boolean hasRest() {
        return ended && full;
    }

    /** The next batch of what was flushed before the end; behind the last one the socket is closed. */
    private void lendRest() {
        begin();
        full = false;
        removing = true;
        try {
            while (!list(buffer)) {
                if (count > 0) {
                    // It fails behind those before it.
                    full = true;
                    break;
                }
                buffer.remove(unsendable);
            }
        } finally {
            removing = false;
        }
        if (count > 0) {
            lend(0, bytes);
        }
        if (!full) {
            channel.closeSocket();
        }
    }

    /** Netty lets go of its queue before the socket is gone: what is in flight stays until its outcome. */
    void letGo() {
        full = false;
        if (!lends() || orphans != null) {
            return;
        }
        orphans = new ArrayList<>();
        try {
            buffer.forEachFlushedMessage(message -> {
                orphans.add(ReferenceCountUtil.retain(message));
                return orphans.size() < count - done;
            });
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** The socket is gone, and with it all that was lent. */
    void closed() {
        ended = true;
        full = false;
        done = count;
        releaseOrphans();
    }

    private void releaseOrphans() {
        if (orphans != null) {
            ArrayList<Object> released = orphans;
            orphans = null;
            released.forEach(ReferenceCountUtil::safeRelease);
        }
    }
}
