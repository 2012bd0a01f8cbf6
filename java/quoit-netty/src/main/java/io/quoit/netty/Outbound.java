package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.FileRegion;
import java.io.IOException;
import java.net.SocketException;

/**
 * The sending half of a stream channel; the loop's thread only.
 *
 * <p>A small flush is copied: into the batch's staging memory at once, from where the next turn copies it again, so that
 * buffers and promises are done with here. So is a longer one of small messages, such as the answers to pipelined requests:
 * a lent piece costs an entry of the kernel's vector and the account of one more buffer, which is more than copying some
 * hundred bytes twice. Of any other, all that is flushed, up to the native high-water mark and a list of pieces, is one
 * send. One that is worth a call of its own is offered to the kernel in the midst of the flush, and what that takes is done
 * with. The rest, and any shorter one, is lent: it leaves with the turn, and the outbound buffer as the library says that
 * it was sent, in parts if it is long, so that who watches the queue sees it shrink. What is flushed meanwhile waits until
 * all of it has gone, and then leaves together. The token of a lent send is the number of bytes lent up to its end, so that
 * a token tells how many bytes have gone.
 *
 * <p>A copied send may be refused where a later lent one is not; therefore nothing of the connection follows a copied send
 * in one batch but what makes that one longer.
 */
final class Outbound {
    /** The token of all copied sends. */
    static final long COPY_TOKEN = Long.MIN_VALUE;

    /** Bytes from which a send is offered to the kernel at once: what the library takes so on either engine. */
    private static final int LEAST_AT_ONCE = 8 << 10;

    private final AbstractQuoitStreamChannel channel;
    /** Netty's queue; kept, as Netty forgets it at the end of the sending direction while bytes are still in flight. */
    private ChannelOutboundBuffer buffer;

    /** Bytes lent, and those of them that have gone. */
    private long lent;

    private long gone;
    /** When the send that is lent, or begins, was first offered, by {@link System#nanoTime()}. */
    private long lentAt;

    /** What goes, or went, with a batch, while the library may still refuse it; null if there is nothing. */
    private BatchedSend batched;

    /** Copied bytes that were refused: to go first. */
    private ByteBuf refused;

    /** The library is full, and tells when it is not. */
    private boolean blocked;
    /** There is more to send once the present batch is taken. */
    private boolean more;

    /** The part of a file that is in flight. */
    private ByteBuf chunk;

    /** What Netty has let go of and the library has not; null if there is nothing. */
    private Leftovers leftovers;

    /** What ends the sending direction, once all that was copied is taken. */
    private Runnable afterwards;

    private boolean removing;
    /** Bytes that have gone, or will, and are still the first of Netty's queue: it is letting go of them. */
    private long going;

    private boolean ended;

    Outbound(AbstractQuoitStreamChannel channel) {
        this.channel = channel;
    }

    /** Whether memory of Java's is in the library's hands. */
    boolean lends() {
        return gone != lent;
    }

    /** Whether bytes are left that the library was lent, or is yet to be given. */
    boolean holds() {
        return lends() || refused != null || hasTail();
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
        if (batched != null) {
            follow(flushed);
        } else {
            send(flushed);
        }
    }

    /**
     * Sends what is flushed behind what the library may still refuse: with a copied send of the present batch, as far as
     * that has room, also for what listeners flush when messages leave the queue for it; otherwise later.
     */
    private void follow(ChannelOutboundBuffer flushed) throws IOException {
        while (batched.canGrow() && !ended && !flushed.isEmpty()) {
            if (!append(flushed)) {
                // The batch that this waits for is yet to be taken.
                channel.handler().hurry();
                break;
            }
        }
        more |= !ended && !flushed.isEmpty();
    }

    /**
     * Sends what is flushed while nothing is under way, until all of it has gone or the rest of it is under way. As many
     * sends at once as the channel's {@code writeSpinCount}, so that a handler that writes whenever it may does not keep
     * the loop.
     */
    private void send(ChannelOutboundBuffer flushed) throws IOException {
        int attempts = channel.config().getWriteSpinCount();
        boolean full = false;
        while (!ended && channel.connection() != 0) {
            if (flushed.current() instanceof FileRegion region) {
                if (region.count() > region.transferred()) {
                    lendFile(region);
                    return;
                }
                flushed.remove();
                continue;
            }
            if (flushed.isEmpty()) {
                return;
            }
            if (copy(flushed)) {
                if (batched == null) {
                    continue;
                }
                follow(flushed);
                return;
            }
            list(flushed);
            long listed = pieces().bytes();
            if (listed == 0) {
                // Nothing but empty messages.
                letGo(flushed, 0);
                continue;
            }
            if (!full) {
                lentAt = System.nanoTime();
            }
            boolean worthACall = listed >= LEAST_AT_ONCE && !full && attempts-- > 0;
            long taken = worthACall ? channel.handler().trySend(channel.connection()) : 0;
            if (taken == 0) {
                sendListed();
                return;
            }
            full = taken < listed;
            left(flushed, taken);
        }
    }

    /** The first bytes of the list have left at once. */
    private void left(ChannelOutboundBuffer flushed, long bytes) {
        PieceLists pieces = pieces();
        if (bytes == pieces.bytes()) {
            wrote((int) bytes, pieces.count());
            flushed(System.nanoTime() - lentAt);
        } else {
            wrote((int) bytes, pieces.covering(bytes));
        }
        pieces.drop();
        letGo(flushed, bytes);
    }

    private void wrote(int bytes, int pieces) {
        channel.metrics().wrote(bytes, pieces);
        channel.handler().metrics().wrote(bytes, pieces);
    }

    private void flushed(long nanos) {
        channel.metrics().flushed(nanos);
        channel.handler().metrics().flushed(nanos);
    }

    // ---- copied ----

    /** Copies all that is flushed, if it is little, or not much and in small messages. */
    private boolean copy(ChannelOutboundBuffer flushed) throws IOException {
        QuoitIoHandler handler = channel.handler();
        OutboundWalk walk = handler.walk();
        if (!walk.isToBeCopied(flushed)) {
            return false;
        }
        int bytes = walk.bytes();
        if (bytes == 0) {
            letGo(flushed, 0);
            return true;
        }
        BatchedSend send = handler.sends().take();
        if (!send.copy(channel.connection(), flushed)) {
            handler.sends().giveBack(send);
            return false;
        }
        flies(send);
        wrote(bytes, walk.pieces());
        letGo(flushed, bytes);
        return true;
    }

    /** Lengthens the copied send of the present batch by all that is flushed, if it has room for that. */
    private boolean append(ChannelOutboundBuffer flushed) throws IOException {
        if (!batched.append(flushed)) {
            return false;
        }
        OutboundWalk walk = channel.handler().walk();
        int bytes = walk.bytes();
        if (bytes > 0) {
            wrote(bytes, walk.pieces());
        }
        letGo(flushed, bytes);
        return true;
    }

    /**
     * Lets go of the first bytes of what is flushed, and of empty messages behind them: writes that were cancelled before
     * their flush are such, which a walk passes over, but the buffer counts. Listeners may flush more meanwhile, or end the
     * direction and with it the queue. As {@code removeBytes} of the buffer does; but what is still to be let go of has to be
     * known then.
     */
    private void letGo(ChannelOutboundBuffer flushed, long bytes) {
        removing = true;
        going = bytes;
        try {
            while (flushed.current() instanceof ByteBuf first) {
                int length = first.readableBytes();
                if (length > going) {
                    if (going > 0) {
                        int part = (int) going;
                        going = 0;
                        first.skipBytes(part);
                        flushed.progress(part);
                    }
                    break;
                }
                if (length > 0) {
                    flushed.progress(length);
                }
                going -= length;
                flushed.remove();
            }
        } finally {
            going = 0;
            removing = false;
        }
    }

    // ---- listed, to be sent at once or lent ----

    private PieceLists pieces() {
        return channel.handler().commands().pieces();
    }

    /** Lists the pieces of all that is flushed, up to the high-water mark, a file or a full list. */
    private void list(ChannelOutboundBuffer flushed) throws IOException {
        try {
            channel.handler().walk().list(flushed);
        } catch (IOException | RuntimeException unreadable) {
            // What stands before that message is sent all the same.
            if (pieces().count() > 0) {
                lentAt = System.nanoTime();
                sendListed();
            }
            throw unreadable;
        }
    }

    /** Lends the list. */
    private void sendListed() {
        PieceLists pieces = pieces();
        lent += pieces.bytes();
        channel.handler().commands().sendPieces(channel.connection(), lent);
        flies();
        wrote((int) pieces.bytes(), pieces.count());
    }

    /** Something goes with the present batch that is not copied for it. */
    private BatchedSend flies() {
        if (batched == null) {
            flies(channel.handler().sends().take());
        }
        return batched;
    }

    private void flies(BatchedSend send) {
        batched = send;
        channel.handler().sends().add(this);
    }

    // ---- files ----

    /** Lends the next part of a file, read into memory. */
    private void lendFile(FileRegion region) throws IOException {
        chunk = FileChunk.read(channel, region);
        lendChunk();
    }

    private void lendChunk() {
        pieces().begin();
        pieces().add(chunk);
        lentAt = System.nanoTime();
        sendListed();
    }

    // ---- what the loop reports ----

    /** Lent bytes have gone, up to this token. */
    void sent(long token) {
        // One send is lent at a time, and told of as it leaves.
        long bytes = token - gone;
        gone = token;
        if (!lends()) {
            flushed(System.nanoTime() - lentAt);
        }
        if (leftovers != null) {
            if (!lends()) {
                leftovers.releaseLent();
                finish();
            }
            return;
        }
        if (chunk != null) {
            sentFile(buffer, bytes);
        } else {
            letGo(buffer, bytes);
        }
        if (!lends()) {
            channel.flushMore();
        }
    }

    private void sentFile(ChannelOutboundBuffer flushed, long bytes) {
        if (!lends()) {
            chunk.release();
            chunk = null;
        }
        removing = true;
        try {
            flushed.progress(bytes);
            // Who was told of the progress may have ended the direction, and with it the queue.
            if (!lends() && flushed.current() instanceof FileRegion region && region.transferred() >= region.count()) {
                flushed.remove();
            }
        } finally {
            removing = false;
        }
    }

    /** The library has room again. */
    void writable() {
        blocked = false;
        if (batched != null) {
            more = true;
        } else {
            goOn();
        }
    }

    private void goOn() {
        if (refused != null) {
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
        flies().resent = true;
    }

    void refused(long token, int reason, int error) {
        BatchedSend send = batched;
        send.lentRefused |= token != COPY_TOKEN;
        if (reason != Abi.REFUSED_FULL) {
            // The first is of the send that broke it, or comes nearest to that.
            if (send.broken == null) {
                send.broken = new SocketException(reason == Abi.REFUSED_ERROR ? Errno.text(error) : "Broken pipe");
            }
            return;
        }
        blocked = true;
        if (token != COPY_TOKEN) {
            return;
        }
        if (send.resent) {
            send.resent = false;
        } else {
            keepRefused(send);
        }
    }

    /** Keeps the copied bytes that were refused; without memory for them, ends a connection that would go on without them. */
    private void keepRefused(BatchedSend send) {
        try {
            refused = channel.alloc().directBuffer(send.length(), send.length());
        } catch (Throwable failure) {
            send.broken = new IOException("bytes that wait to be sent could not be kept", failure);
            channel.handler().commands().simple(Abi.COMMAND_ABORT, channel.connection());
            return;
        }
        refused.writeBytes(send.bytes());
    }

    /** The library takes the batch with this channel's sends. */
    void taken() {
        batched.taken();
    }

    /** The library has told all that it refused of that batch. */
    void batchTaken() {
        if (batched.broken == null) {
            toldAll();
        } else {
            // It ends the channel: behind what was received, of which this run may bring some.
            channel.handler().sends().breaks(this);
        }
    }

    /** All that was refused is told, and before an end for that all else of the run. */
    void toldAll() {
        BatchedSend send = batched;
        boolean resent = send.resent;
        boolean lentRefused = send.lentRefused;
        IOException broken = send.broken;
        batched = null;
        channel.handler().sends().giveBack(send);
        if (resent) {
            // Taken at last.
            refused.release();
            refused = null;
            more = true;
        }
        if (lentRefused) {
            // At most one is in flight: this one.
            lent = gone;
            // If the direction has ended meanwhile, the peer sees a clean end without these bytes, as it does with Netty's own
            // transports for what the socket had no room for: the promises have failed. What stands behind must not follow.
            releaseLeftovers();
        }
        if (broken != null) {
            if (leftovers != null) {
                leftovers.releaseTail();
            }
            if (!ended) {
                // What was received and waits to be read would be lost: the connection's end, which follows, tells behind it.
                if (!channel.inbound().holds()) {
                    // There is nothing to keep when Netty lets go of its queue.
                    ended = !lends();
                    channel.writeFailed(broken);
                }
                return;
            }
        }
        finish();
        if (more && !blocked) {
            more = false;
            goOn();
        }
    }

    // ---- the end ----

    /**
     * Runs what ends the sending direction: at once, or when the library has been given all that goes before it, and can
     * refuse no bytes any more that Netty was told are sent.
     */
    void afterAll(Runnable task) {
        afterwards = task;
        finish();
    }

    private void finish() {
        if (afterwards == null) {
            return;
        }
        if (batched != null) {
            channel.handler().hurry();
        } else if (refused != null || hasTail() && lends()) {
            // The peer must make room before a closed channel's connection can end: not for ever.
            channel.endWaits();
        } else if (hasTail()) {
            lendTail();
        } else {
            Runnable task = afterwards;
            afterwards = null;
            task.run();
        }
    }

    private boolean hasTail() {
        return leftovers != null && leftovers.hasTail();
    }

    private void lendTail() {
        pieces().begin();
        pieces().add(leftovers.lendTail());
        lentAt = System.nanoTime();
        sendListed();
        channel.handler().hurry();
    }

    /**
     * Netty lets go of its queue: what is in flight stays until it was sent, or the connection is gone. What was flushed
     * behind it follows, up to the high-water mark.
     */
    void end() {
        if (ended) {
            return;
        }
        ended = true;
        if (buffer == null || buffer.isEmpty()) {
            return;
        }
        int highWater = channel.handler().config().highWater();
        leftovers = new Leftovers(channel);
        if (chunk == null) {
            leftovers.keep(buffer, lent - gone, going, highWater);
        } else {
            leftovers.keepFile(buffer, chunk, lends(), highWater);
            chunk = null;
        }
    }

    private void releaseLeftovers() {
        if (leftovers != null) {
            leftovers.release();
            leftovers = null;
        }
    }

    /** The connection is gone, and with it all that was lent. */
    void closed() {
        ended = true;
        afterwards = null;
        if (batched != null) {
            batched.resent = false;
            // What fails is told with the reason of that, behind what was received.
            batched.broken = null;
        }
        gone = lent;
        releaseLeftovers();
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
