package io.quoit.netty;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * The graceful end of a closed channel's connection; the loop's thread only. It begins when the library has been given all that
 * goes before it. If the peer has to make room for that, this waits as the library does from then on: for as long as the peer
 * takes something, or for the time that the channel's {@code SO_LINGER} says.
 */
final class GracefulEnd implements Runnable {
    private final AbstractQuoitStreamChannel channel;
    /** The end of SO_LINGER's time, by {@link System#nanoTime()}. */
    private final long lingersUntil;

    private final boolean lingers;

    /** The next look at the peer; null if there is nothing to wait for. */
    private Future<?> look;
    /** What the peer had taken at the last one. */
    private long taken;

    /** Begins SO_LINGER's time; negative seconds set none. */
    GracefulEnd(AbstractQuoitStreamChannel channel, int lingerSeconds) {
        this.channel = channel;
        lingers = lingerSeconds >= 0;
        lingersUntil = System.nanoTime() + TimeUnit.SECONDS.toNanos(lingerSeconds);
    }

    /** Begins: the library looks after the peer itself from now on. */
    @Override
    public void run() {
        cancel();
        if (channel.connection() != 0) {
            channel.handler().commands().close(channel.connection(), lingers ? lingerNanos() : -1);
        }
    }

    private long lingerNanos() {
        return Math.max(0, lingersUntil - System.nanoTime());
    }

    /** The peer must make room first. */
    void awaitRoom() {
        if (look == null) {
            taken = takenByPeer();
            lookLater();
        }
    }

    private void lookLater() {
        long nanos = lingers ? lingerNanos() : channel.handler().config().closeDeadlineNanos();
        look = channel.eventLoop().schedule(this::look, nanos, TimeUnit.NANOSECONDS);
    }

    private void look() {
        look = null;
        long before = taken;
        taken = takenByPeer();
        if (!lingers && taken != before) {
            lookLater();
        } else {
            channel.handler().commands().simple(Abi.COMMAND_ABORT, channel.connection());
        }
    }

    private long takenByPeer() {
        return channel.handler().takenByPeer(channel.connection());
    }

    /** There is nothing to wait for any more: the loop forgets the channel. */
    void cancel() {
        if (look != null) {
            look.cancel(false);
            look = null;
        }
    }
}
