package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.socket.DatagramPacket;
import io.quoit.netty.Abi.Datagrams;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;

/**
 * The receiving half of a datagram channel; the loop's thread only. What comes while nobody wants to read is kept until the
 * next read, and the socket paused: that is no more than one turn brings.
 */
final class DatagramInbound implements LeaseHolder {
    private final QuoitDatagramChannel channel;
    private final Runnable deliverLater = this::deliver;
    private final EndOfRun completion = this::complete;

    /** The socket's own receive memory. */
    private LeasePool pool;

    private final ArrayDeque<DatagramPacket> held = new ArrayDeque<>(0);

    private boolean readPending;
    /** As of {@link Inbound}: a handler may withhold the reads that autoRead makes. */
    private boolean hasRead;
    /** What the socket was told last; it opens paused. */
    private boolean paused = true;

    private boolean delivering;
    private boolean deliveryAsked;
    /** Something was read since the last channelReadComplete. */
    private boolean incomplete;

    /** Who sent the last datagram, as the kernel has it and as Java does. */
    private final long[] lastPeer = new long[4];

    private InetSocketAddress lastSender;

    DatagramInbound(QuoitDatagramChannel channel) {
        this.channel = channel;
    }

    // ---- slots: the pool's own limit is the socket's ----

    @Override
    public int slotsHeld() {
        return 0;
    }

    @Override
    public void handedOut() {}

    @Override
    public void returnedHere() {}

    @Override
    public void returnedElsewhere() {}

    // ---- what Netty asks for ----

    void opened(LeasePool memory) {
        pool = memory;
        if (wanted()) {
            resume();
        }
    }

    /** autoRead was turned off: what was asked for because of it is not wanted any more. */
    void clearRead() {
        readPending = false;
        hasRead = false;
    }

    void read() {
        readPending = true;
        hasRead = true;
        if (!held.isEmpty()) {
            askDelivery();
        } else {
            resume();
        }
    }

    private boolean wanted() {
        return readPending || hasRead && channel.config().isAutoRead();
    }

    private void askDelivery() {
        // Inside of deliver the loop looks again by itself.
        if (!delivering && !deliveryAsked) {
            deliveryAsked = true;
            channel.eventLoop().execute(deliverLater);
        }
    }

    private void resume() {
        if (paused && channel.socket() != 0) {
            paused = false;
            channel.handler().commands().simple(Abi.COMMAND_RESUME_DATAGRAMS, channel.socket());
        }
    }

    private void pause() {
        if (!paused && channel.socket() != 0) {
            paused = true;
            channel.handler().commands().simple(Abi.COMMAND_PAUSE_DATAGRAMS, channel.socket());
        }
    }

    // ---- what the loop reports ----

    /** A buffer came, which a {@code quoit_datagrams} describes. */
    void received(long view, long lease) {
        if (!channel.isOpen()) {
            pool.discard(lease);
            return;
        }
        NativeLibrary library = NativeLoader.library();
        int count = library.intAt(view + Datagrams.COUNT);
        int segment = library.intAt(view + Datagrams.SEGMENT_SIZE);
        int length = library.intAt(view + Datagrams.LENGTH);
        InetSocketAddress sender = sender(library, view);
        ByteBuf bytes;
        try {
            bytes = bytes(library.longAt(view + Datagrams.DATA), length, lease);
        } catch (Throwable failure) {
            lost(failure);
            return;
        }
        if (count == 1) {
            offer(bytes, sender);
            return;
        }
        try {
            while (bytes.isReadable()) {
                offer(bytes.readRetainedSlice(Math.min(segment, bytes.readableBytes())), sender);
            }
        } finally {
            bytes.release();
        }
    }

    private ByteBuf bytes(long address, int length, long lease) {
        if (length == 0) {
            pool.discard(lease);
            return Unpooled.EMPTY_BUFFER;
        }
        return pool.take(address, length, lease, this, channel.alloc());
    }

    private InetSocketAddress sender(NativeLibrary library, long view) {
        int length = library.intAt(view + Datagrams.PEER_LENGTH);
        if (length < Addresses.INET_BYTES) {
            return null;
        }
        long peer = library.longAt(view + Datagrams.PEER);
        boolean same = lastSender != null;
        // An IPv4 address is told by its first eight bytes, one of IPv6 by twenty-eight.
        int words = length == Addresses.INET_BYTES ? 1 : 4;
        for (int word = 0; word < words; word++) {
            long raw = word < 3 ? library.longAt(peer + 8 * word) : library.intAt(peer + 24);
            same &= lastPeer[word] == raw;
            lastPeer[word] = raw;
        }
        if (!same) {
            lastSender = (InetSocketAddress) Addresses.read(library.view(peer, length), length);
        }
        return lastSender;
    }

    /** A datagram had no memory, or the user's allocator failed: the handlers are told, and the next one may fare better. */
    private void lost(Throwable failure) {
        channel.pipeline().fireExceptionCaught(failure);
    }

    private void offer(ByteBuf bytes, InetSocketAddress sender) {
        ByteBuf content = bytes;
        if (channel.config().hasOwnReceiveAllocator()) {
            try {
                content = copied(bytes);
            } catch (Throwable failure) {
                lost(failure);
                return;
            }
        }
        DatagramPacket packet = new DatagramPacket(content, channel.localAddress(), sender);
        if (!channel.isOpen()) {
            packet.release();
        } else if (!held.isEmpty() || delivering || !wanted()) {
            held.addLast(packet);
            pause();
        } else {
            deliver(packet);
        }
    }

    /** As a transport does that reads into buffers of the channel's allocator: what does not fit is lost. */
    private ByteBuf copied(ByteBuf bytes) {
        begin();
        try {
            ByteBuf own = channel.unsafe().recvBufAllocHandle().allocate(channel.alloc());
            return own.writeBytes(bytes, Math.min(own.writableBytes(), bytes.readableBytes()));
        } finally {
            bytes.release();
        }
    }

    // ---- delivery ----

    private void deliver() {
        deliveryAsked = false;
        if (delivering) {
            return;
        }
        delivering = true;
        try {
            while (!held.isEmpty() && channel.isOpen() && wanted()) {
                deliver(held.removeFirst());
            }
        } finally {
            delivering = false;
        }
        complete();
        if (channel.isOpen() && held.isEmpty() && wanted()) {
            resume();
        }
    }

    private void begin() {
        if (!incomplete) {
            incomplete = true;
            channel.handler().atEndOfRun(completion);
            channel.unsafe().recvBufAllocHandle().reset(channel.config());
        }
    }

    private void deliver(DatagramPacket packet) {
        int length = packet.content().readableBytes();
        channel.metrics().received(length);
        try {
            begin();
            var handle = channel.unsafe().recvBufAllocHandle();
            handle.attemptedBytesRead(length);
            handle.lastBytesRead(length);
            handle.incMessagesRead(1);
        } catch (Throwable failure) {
            // That of the user's allocator's handle.
            packet.release();
            lost(failure);
            return;
        }
        readPending = false;
        channel.pipeline().fireChannelRead(packet);
    }

    /** A read brought an error, and no datagram: who has asked for it has to ask again. */
    void failed(IOException failure) {
        try {
            begin();
        } catch (Throwable wrong) {
            lost(wrong);
        }
        readPending = false;
        complete();
        channel.pipeline().fireExceptionCaught(failure);
        if (!wanted()) {
            pause();
        }
    }

    /** The end of a run of reads. */
    private void complete() {
        if (incomplete) {
            incomplete = false;
            try {
                channel.unsafe().recvBufAllocHandle().readComplete();
            } catch (Throwable failure) {
                lost(failure);
            }
            channel.pipeline().fireChannelReadComplete();
            hasRead = wanted();
        }
    }

    /** The channel is closed: nobody reads what is held. */
    void release() {
        for (DatagramPacket packet = held.pollFirst(); packet != null; packet = held.pollFirst()) {
            packet.release();
        }
    }
}
