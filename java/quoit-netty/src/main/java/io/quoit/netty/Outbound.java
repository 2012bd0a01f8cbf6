package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.FileRegion;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.util.ArrayList;

/**
 * The sending half of a stream channel; the loop's thread only.
 *
 * <p>A small flush is copied: into the batch's staging memory at once, from where the next turn copies it again, so that
 * buffers and promises are done with here. So is a longer one of small messages, such as the answers to pipelined requests:
 * a lent piece costs an entry of the kernel's vector and the account of one more buffer, which is more than copying some
 * hundred bytes twice. Any other is lent: all that is flushed, up to the native high-water mark and a list of pieces, is
 * one send, and leaves the outbound buffer when the library says that it was sent. What is flushed meanwhile waits for
 * that, and then leaves together. The token of a lent send is the number of bytes lent up to its end, so that a token
 * tells how many bytes have gone.
 *
 * <p>A copied send may be refused where a later lent one is not; therefore nothing of the connection follows a copied send
 * in one batch but what makes that one longer.
 */
final class Outbound implements ChannelOutboundBuffer.MessageProcessor {
    /** The token of all copied sends. */
    static final long COPY_TOKEN = Long.MIN_VALUE;

    /** A flush of small messages is copied up to so many times the threshold of other flushes. */
    private static final int SMALL_MESSAGES_TIMES = 8;

    /** Messages are small if they have at most this part of the threshold each, on average: 512 bytes by default. */
    private static final int SMALL_MESSAGE_PART = 4;

    private static final int NONE = -1;

    /** What a walk over the flushed messages does with each. */
    private enum Walk {
        MEASURE,
        COPY,
        LEND
    }

    private final AbstractQuoitStreamChannel channel;
    private int copyThreshold;
    /** What a flush of small messages may have to be copied: no more than the library takes at once. */
    private int copyMost;
    private int highWater;

    /** Netty's queue; kept, as Netty forgets it at the end of the sending direction while bytes are still in flight. */
    private ChannelOutboundBuffer buffer;

    /** Bytes lent, and those of them that have gone. */
    private long lent;

    private long gone;
    /** When what is lent was given to the loop, by {@link System#nanoTime()}. */
    private long lentAt;

    /** The copied send of the present batch: where it is staged, how long, what it may grow to, and its command's place. */
    private int staged = NONE;

    private int stagedLength;
    private int stagedRoom;
    private int stagedCommand;
    /** What was staged for the batch that the library has taken, and its length. */
    private int taken = NONE;

    private int takenLength;
    /** There are sends that the library may still refuse. */
    private boolean unsettled;

    /** Copied bytes that were refused: to go first. */
    private ByteBuf refused;

    private boolean resent;
    /** The lent send of a batch was refused. */
    private boolean lentRefused;
    /** Sends are refused for good: the connection has broken, or ends. */
    private boolean broken;
    /** The library is full, and tells when it is not. */
    private boolean blocked;
    /** There is more to send once the present batch has settled. */
    private boolean more;

    /** The part of a file that is in flight. */
    private ByteBuf chunk;

    /** In flight though Netty has let go of them. */
    private ArrayList<Object> orphans;

    /** What ends the sending direction, once all that was copied is taken. */
    private Runnable afterwards;

    private boolean removing;
    private boolean ended;

    // The state of a walk over the flushed messages.
    private Walk walking;
    private boolean walkFailed;
    private int walkLimit;
    private int walked;
    private int walkedBytes;
    private int walkedPieces;

    Outbound(AbstractQuoitStreamChannel channel) {
        this.channel = channel;
    }

    void start(QuoitIoHandlerConfig config) {
        copyThreshold = config.copyThreshold();
        highWater = config.highWater();
        copyMost = Math.min(SMALL_MESSAGES_TIMES * copyThreshold, highWater);
    }

    /** Whether memory of Java's is in the library's hands. */
    boolean lends() {
        return gone != lent;
    }

    /** Sends what is flushed, as far as it may be sent now. */
    void write(ChannelOutboundBuffer flushed) throws IOException {
        buffer = flushed;
        if (channel.connection() == 0 || removing || ended) {
            return;
        }
        if (blocked || lends() || refused != null || chunk != null) {
            return;
        }
        if (staged != NONE || unsettled) {
            if ((staged == NONE || !append(flushed)) && !flushed.isEmpty()) {
                more = true;
                if (staged != NONE) {
                    // The batch that this waits for is yet to be taken.
                    channel.handler().hurry();
                }
            }
            return;
        }
        while (flushed.current() instanceof FileRegion region) {
            if (region.count() > region.transferred()) {
                lendFile(region);
                return;
            }
            flushed.remove();
            if (ended || channel.connection() == 0) {
                return;
            }
        }
        if (flushed.isEmpty() || copy(flushed)) {
            return;
        }
        lend(flushed);
    }

    private void wrote(int bytes, int pieces) {
        channel.metrics().wrote(bytes, pieces);
        channel.handler().metrics().wrote(bytes, pieces);
    }

    // ---- copied ----

    /** Copies all that is flushed, if it is little, or not much and in small messages. */
    private boolean copy(ChannelOutboundBuffer flushed) throws IOException {
        if (!(flushed.current() instanceof ByteBuf first) || first.readableBytes() > copyThreshold) {
            return false;
        }
        // Before anything is copied in vain.
        if (!walk(flushed, Walk.MEASURE, copyMost)) {
            return false;
        }
        if (walkedBytes > copyThreshold && walkedBytes > walkedPieces * (copyThreshold / SMALL_MESSAGE_PART)) {
            return false;
        }
        if (walkedBytes == 0) {
            removeWalked(flushed);
            return true;
        }
        CommandBatch commands = channel.handler().commands();
        int room = Math.max(walkedBytes, CommandBatch.REGION_BYTES);
        int region = commands.stage(room);
        if (region < 0) {
            return false;
        }
        staged = region;
        stagedLength = 0;
        stagedRoom = room;
        walk(flushed, Walk.COPY, room);
        stagedLength = walkedBytes;
        stagedCommand =
                commands.send(channel.connection(), commands.stagingAddress() + region, walkedBytes, COPY_TOKEN);
        flies();
        wrote(walkedBytes, walkedPieces);
        removeWalked(flushed);
        return true;
    }

    /** Lengthens the copied send of the present batch. */
    private boolean append(ChannelOutboundBuffer flushed) throws IOException {
        if (!walk(flushed, Walk.COPY, stagedRoom - stagedLength)) {
            return false;
        }
        if (walkedBytes > 0) {
            stagedLength += walkedBytes;
            channel.handler().commands().sendMore(stagedCommand, stagedLength);
            wrote(walkedBytes, walkedPieces);
        }
        removeWalked(flushed);
        return true;
    }

    /** Walks over the flushed messages; false if they are more than {@code most} bytes, or not all bytes. */
    private boolean walk(ChannelOutboundBuffer flushed, Walk how, int most) throws IOException {
        walking = how;
        walkLimit = most;
        walked = 0;
        walkedBytes = 0;
        walkedPieces = 0;
        walkFailed = false;
        try {
            flushed.forEachFlushedMessage(this);
        } catch (Exception failure) {
            throw new IOException("a message could not be sent", failure);
        }
        return !walkFailed;
    }

    private void removeWalked(ChannelOutboundBuffer flushed) throws IOException {
        removing = true;
        try {
            for (int messages = walked; messages > 0; messages--) {
                flushed.remove();
            }
        } finally {
            removing = false;
        }
        // Listeners may have flushed more.
        if (!ended && channel.connection() != 0 && !flushed.isEmpty()) {
            write(flushed);
        }
    }

    // ---- lent ----

    /** Lends all that is flushed, up to the high-water mark, a file or a full list. */
    private void lend(ChannelOutboundBuffer flushed) throws IOException {
        channel.handler().commands().pieces().begin();
        try {
            walk(flushed, Walk.LEND, highWater);
        } finally {
            // Also what stands before a message that could not be read: its account is kept.
            if (walkedPieces > 0) {
                sendLent();
            }
        }
        if (walkedPieces == 0 && walked > 0) {
            // Nothing but empty messages.
            removeWalked(flushed);
        }
    }

    @Override
    public boolean processMessage(Object message) throws Exception {
        if (!(message instanceof ByteBuf bytes)) {
            walkFailed = true;
            return false;
        }
        int length = bytes.readableBytes();
        if (walking == Walk.LEND) {
            // The limit may be passed once: it is not the library's memory.
            if (walkedBytes >= walkLimit || channel.handler().commands().pieces().isFull()) {
                return false;
            }
        } else if (length > walkLimit - walkedBytes) {
            walkFailed = true;
            return false;
        }
        if (length > 0) {
            switch (walking) {
                case MEASURE -> walkedPieces++;
                case COPY -> {
                    stage(bytes, length);
                    walkedPieces++;
                }
                case LEND -> lend(bytes);
            }
        }
        walked++;
        walkedBytes += length;
        return true;
    }

    private void stage(ByteBuf bytes, int length) {
        CommandBatch commands = channel.handler().commands();
        int at = staged + stagedLength + walkedBytes;
        if (bytes.hasMemoryAddress()) {
            // Also spares the view that a pooled buffer would make for this.
            commands.stage(at, bytes.memoryAddress() + bytes.readerIndex(), length);
            return;
        }
        ByteBuffer staging = commands.staging();
        if (bytes.nioBufferCount() == 1) {
            // The buffer's own view: any other would be made for this.
            ByteBuffer source = bytes.internalNioBuffer(bytes.readerIndex(), length);
            staging.put(at, source, source.position(), length);
        } else {
            staging.limit(at + length).position(at);
            bytes.getBytes(bytes.readerIndex(), staging);
            staging.clear();
        }
    }

    /** Adds a message's pieces to the list, as far as it has room: what was not lent of a message is so later. */
    private void lend(ByteBuf bytes) {
        if (bytes.hasMemoryAddress()) {
            lend(bytes.memoryAddress() + bytes.readerIndex(), bytes.readableBytes());
        } else if (bytes.nioBufferCount() == 1) {
            lend(bytes.internalNioBuffer(bytes.readerIndex(), bytes.readableBytes()));
        } else {
            for (ByteBuffer part : bytes.nioBuffers(bytes.readerIndex(), bytes.readableBytes())) {
                if (channel.handler().commands().pieces().isFull()) {
                    return;
                }
                if (part.hasRemaining()) {
                    lend(part);
                }
            }
        }
    }

    private void lend(ByteBuffer part) {
        lend(NativeLoader.library().address(part) + part.position(), part.remaining());
    }

    private void lend(long address, int length) {
        channel.handler().commands().pieces().add(address, length);
        lent += length;
        walkedPieces++;
    }

    /** Sends the list. */
    private void sendLent() {
        lentAt = System.nanoTime();
        channel.handler().commands().sendPieces(channel.connection(), lent);
        flies();
        wrote((int) (lent - gone), walkedPieces);
    }

    private void flies() {
        if (!unsettled) {
            unsettled = true;
            channel.handler().flies(this);
        }
    }

    // ---- files ----

    /** Lends the next part of a file, read into memory. */
    private void lendFile(FileRegion region) throws IOException {
        chunk = FileChunk.read(channel, region);
        lendChunk();
    }

    private void lendChunk() {
        channel.handler().commands().pieces().begin();
        walkedPieces = 0;
        lend(chunk);
        sendLent();
    }

    // ---- what the loop reports ----

    /** Lent bytes have gone, up to this token. */
    void sent(long token) {
        int bytes = (int) (token - gone);
        gone = token;
        if (!lends()) {
            long nanos = System.nanoTime() - lentAt;
            channel.metrics().flushed(nanos);
            channel.handler().metrics().flushed(nanos);
        }
        if (orphans != null) {
            if (!lends()) {
                releaseOrphans();
            }
            return;
        }
        ChannelOutboundBuffer flushed = buffer;
        removing = true;
        try {
            if (chunk != null) {
                sentFile(flushed, bytes);
            } else {
                flushed.removeBytes(bytes);
            }
        } finally {
            removing = false;
        }
        if (!lends()) {
            channel.flushMore();
        }
    }

    private void sentFile(ChannelOutboundBuffer flushed, int bytes) {
        flushed.progress(bytes);
        if (!lends()) {
            chunk.release();
            chunk = null;
            FileRegion region = (FileRegion) flushed.current();
            if (region.transferred() >= region.count()) {
                flushed.remove();
            }
        }
    }

    /** The library has room again. */
    void writable() {
        blocked = false;
        if (unsettled) {
            more = true;
        } else {
            goOn();
        }
    }

    private void goOn() {
        if (refused != null) {
            resent = true;
            lendless(refused);
        } else if (chunk != null && !lends()) {
            lendChunk();
        } else {
            channel.flushMore();
        }
    }

    /** Sends copied bytes that were refused once more. */
    private void lendless(ByteBuf bytes) {
        long address = bytes.hasMemoryAddress()
                ? bytes.memoryAddress()
                : NativeLoader.library().address(bytes.internalNioBuffer(0, bytes.readableBytes()));
        channel.handler().commands().send(channel.connection(), address, bytes.readableBytes(), COPY_TOKEN);
        flies();
    }

    void refused(long token, int reason) {
        if (reason != Abi.REFUSED_FULL) {
            broken = true;
            return;
        }
        blocked = true;
        if (token != COPY_TOKEN) {
            lentRefused = true;
        } else if (resent) {
            resent = false;
        } else {
            refused = channel.alloc().directBuffer(takenLength, takenLength);
            ByteBuffer staging = channel.handler().commands().staging();
            staging.limit(taken + takenLength).position(taken);
            refused.writeBytes(staging);
            staging.clear();
        }
    }

    /** The library takes the batch with this channel's sends. */
    void taken() {
        taken = staged;
        takenLength = stagedLength;
        staged = NONE;
        stagedLength = 0;
    }

    /** The library has told all that it refused of that batch. */
    void settled() {
        unsettled = false;
        if (resent) {
            // Taken at last.
            resent = false;
            refused.release();
            refused = null;
            more = true;
        }
        if (lentRefused) {
            // At most one is in flight: this one.
            lentRefused = false;
            lent = gone;
        }
        if (broken) {
            broken = false;
            if (!ended) {
                channel.writeFailed(new SocketException("Broken pipe"));
            }
            return;
        }
        if (afterwards != null) {
            if (refused == null) {
                Runnable task = afterwards;
                afterwards = null;
                task.run();
            } else {
                // The peer must make room before the direction can end: not for ever.
                channel.abortLater();
            }
        }
        if (more && !blocked) {
            more = false;
            goOn();
        }
    }

    // ---- the end ----

    /**
     * Runs what ends the sending direction: at once, or when the library can refuse no bytes any more that Netty was told
     * are sent.
     */
    void afterCopies(Runnable task) {
        if (!unsettled && refused == null) {
            task.run();
        } else {
            afterwards = task;
            channel.handler().hurry();
        }
    }

    /** Netty lets go of its queue: what is in flight stays until it was sent, or the connection is gone. */
    void end() {
        ended = true;
        if (!lends() || orphans != null) {
            return;
        }
        orphans = new ArrayList<>();
        if (chunk != null) {
            orphans.add(chunk);
            chunk = null;
            return;
        }
        long[] left = {lent - gone};
        try {
            buffer.forEachFlushedMessage(message -> {
                if (left[0] <= 0 || !(message instanceof ByteBuf bytes)) {
                    return false;
                }
                left[0] -= bytes.readableBytes();
                orphans.add(bytes.retain());
                return true;
            });
        } catch (Exception impossible) {
            throw new IllegalStateException("retaining messages throws nothing", impossible);
        }
    }

    private void releaseOrphans() {
        ArrayList<Object> released = orphans;
        orphans = null;
        released.forEach(ReferenceCountUtil::safeRelease);
    }

    /** The connection is gone, and with it all that was lent. */
    void closed() {
        ended = true;
        afterwards = null;
        gone = lent;
        if (orphans != null) {
            releaseOrphans();
        }
        if (chunk != null) {
            chunk.release();
            chunk = null;
        }
        if (refused != null) {
            refused.release();
            refused = null;
        }
    }
}
