package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelMetadata;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.ServerChannel;
import io.netty.util.concurrent.PromiseNotifier;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.channels.AlreadyBoundException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayDeque;

/**
 * A listening socket. Its loop accepts plain descriptors, which become connections of the loop that their channel is
 * registered with. While nobody wants to read, nothing is accepted: the kernel's queue fills.
 */
abstract class AbstractQuoitServerChannel extends AbstractQuoitChannel implements ServerChannel {
    private static final ChannelMetadata METADATA = new ChannelMetadata(false, 16);
    private static final int NO_DESCRIPTOR = -1;

    /** Another process may accept from the socket as well. */
    private final boolean shared;

    private final Runnable deliverLater = this::deliver;
    private final EndOfRun completion = this::complete;

    private volatile int descriptor = NO_DESCRIPTOR;
    private volatile boolean active;
    /** The native listener; 0 if there is none. It has a duplicate of the descriptor. */
    private long listener;

    private boolean stopping;
    /** Nothing is to be accepted any more, and what was is delivered; completed when that is done. */
    private ChannelPromise stopped;
    /** The native listener accepts nothing. */
    private boolean paused;

    private boolean readPending;
    private boolean incomplete;
    private boolean deliveryAsked;
    /** Accepted while nobody wanted to read. */
    private final ArrayDeque<Integer> held = new ArrayDeque<>();

    AbstractQuoitServerChannel() {
        super(null);
        shared = false;
    }

    /** One of a socket that listens already, which is the channel's from now on, also if this fails. */
    AbstractQuoitServerChannel(int descriptor) {
        super(null);
        shared = true;
        try {
            if (Descriptors.get(descriptor, Descriptors.SOL_SOCKET, Descriptors.SO_ACCEPTCONN) == 0) {
                throw new ChannelException("the socket does not listen");
            }
        } catch (ChannelException wrong) {
            Descriptors.close(descriptor);
            throw new ChannelException("descriptor " + descriptor + " is no listening socket", wrong);
        }
        this.descriptor = descriptor;
        local = Descriptors.localAddress(descriptor);
        active = true;
    }

    @Override
    public ChannelMetadata metadata() {
        return METADATA;
    }

    /** The listening socket; negative if it is not bound. */
    final int descriptor() {
        return descriptor;
    }

    @Override
    public final boolean isActive() {
        return active && isOpen();
    }

    @Override
    final boolean isBoundToLoop() {
        return active;
    }

    /** A socket, with the options of this channel, that is bound to the address. */
    abstract int bindSocket(SocketAddress address) throws IOException;

    abstract int backlog();

    /** The channel of an accepted socket. */
    abstract Channel child(int accepted);

    @Override
    protected final void doBind(SocketAddress address) throws Exception {
        checkResolved(address);
        if (active) {
            throw new AlreadyBoundException();
        }
        int bound = bindSocket(address);
        try {
            Descriptors.listen(bound, backlog());
            ((AbstractQuoitConfig) config()).applyRest(bound, () -> descriptor = bound);
        } catch (IOException | RuntimeException failure) {
            Descriptors.close(bound);
            throw failure;
        }
        local = Descriptors.localAddress(bound);
        active = true;
        if (readPending) {
            listen();
        }
    }

    private void listen() throws IOException {
        if (!active || !isOpen() || stopped != null) {
            return;
        }
        if (listener == 0) {
            paused = false;
            listener = handler().listen(this, Descriptors.duplicate(descriptor));
        } else if (paused) {
            paused = false;
            handler().commands().simple(Abi.COMMAND_RESUME_LISTENING, listener);
        }
    }

    /** Leaves who connects in the kernel's queue. What was accepted meanwhile is held. */
    private void pause() {
        if (listener != 0 && !stopping && !paused) {
            paused = true;
            handler().commands().simple(Abi.COMMAND_PAUSE_LISTENING, listener);
        }
    }

    @Override
    protected final void doBeginRead() throws Exception {
        readPending = true;
        if (!held.isEmpty()) {
            if (!deliveryAsked) {
                deliveryAsked = true;
                eventLoop().execute(deliverLater);
            }
        } else {
            listen();
        }
    }

    @Override
    final void clearRead() {
        readPending = false;
    }

    private boolean wanted() {
        return readPending || config().isAutoRead() || stopped != null;
    }

    /**
     * Accepts nothing more, and loses nobody: the pipeline gets the connections that the loop has accepted already, whether it
     * asks to read or not, and the channel stays open until it is closed, which would reset them. It is the first step of a
     * process that another one takes over from, with the same socket.
     *
     * @return done when the pipeline has had all of them
     */
    public final ChannelFuture stopAccepting() {
        ChannelPromise promise = newPromise();
        if (eventLoop().inEventLoop()) {
            stopAccepting(promise);
        } else {
            eventLoop().execute(() -> stopAccepting(promise));
        }
        return promise;
    }

    private void stopAccepting(ChannelPromise promise) {
        if (!isOpen()) {
            promise.setFailure(new ClosedChannelException());
            return;
        }
        if (stopped != null) {
            stopped.addListener(new PromiseNotifier<>(promise));
            return;
        }
        stopped = promise;
        deliver();
        if (listener == 0) {
            promise.trySuccess();
        } else {
            stop();
        }
    }

    /** The loop has accepted a socket. */
    final void accepted(int accepted) {
        if (!isOpen()) {
            Descriptors.close(accepted);
        } else if (!wanted() || !held.isEmpty()) {
            held.addLast(accepted);
            pause();
        } else {
            deliver(accepted);
        }
    }

    /**
     * The loop could not accept, mostly for want of descriptors, and tries again by itself. As elsewhere the handlers are told:
     * a bootstrap's stops to read for a second, and the loop tries again when it reads.
     */
    final void acceptFailed(int error) {
        if (!isOpen() || !wanted()) {
            return;
        }
        begin();
        complete();
        pipeline().fireExceptionCaught(Errno.exception("accept", error));
        if (isOpen() && !wanted()) {
            pause();
        }
    }

    private void stop() {
        if (listener != 0 && !stopping) {
            stopping = true;
            handler().commands().simple(Abi.COMMAND_STOP_LISTENING, listener);
        }
    }

    private void deliver() {
        deliveryAsked = false;
        while (!held.isEmpty() && isOpen() && wanted()) {
            deliver(held.removeFirst());
        }
        complete();
        if (held.isEmpty() && wanted()) {
            try {
                listen();
            } catch (IOException failure) {
                pipeline().fireExceptionCaught(failure);
            }
        }
    }

    private void deliver(int accepted) {
        begin();
        unsafe().recvBufAllocHandle().incMessagesRead(1);
        readPending = false;
        Channel child;
        try {
            child = child(accepted);
        } catch (ChannelException gone) {
            Descriptors.close(accepted);
            pipeline().fireExceptionCaught(gone);
            return;
        }
        pipeline().fireChannelRead(child);
    }

    private void begin() {
        if (!incomplete) {
            incomplete = true;
            handler().atEndOfRun(completion);
            unsafe().recvBufAllocHandle().reset(config());
        }
    }

    private void complete() {
        if (incomplete) {
            incomplete = false;
            unsafe().recvBufAllocHandle().readComplete();
            pipeline().fireChannelReadComplete();
        }
    }

    /** The native listener is gone: it was stopped, or its socket has failed. */
    final void ended(int error) {
        listener = 0;
        boolean asked = stopping;
        stopping = false;
        if (!isOpen()) {
            return;
        }
        if (stopped != null) {
            deliver();
            stopped.trySuccess();
            return;
        }
        try {
            if (error != 0 && !asked) {
                throw Errno.exception("accept", error);
            }
            if (wanted() && held.isEmpty()) {
                listen();
            }
        } catch (IOException failure) {
            pipeline().fireExceptionCaught(failure);
            unsafe().close(unsafe().voidPromise());
        }
    }

    @Override
    protected void doClose() throws Exception {
        if (!markClosed()) {
            return;
        }
        active = false;
        if (stopped != null) {
            stopped.tryFailure(new ClosedChannelException());
        }
        for (Integer accepted = held.pollFirst(); accepted != null; accepted = held.pollFirst()) {
            Descriptors.close(accepted);
        }
        stop();
        if (descriptor >= 0) {
            int closed = descriptor;
            descriptor = NO_DESCRIPTOR;
            try {
                if (listener != 0 && !shared) {
                    // The loop's duplicate lives until its next turn; the address must be free at once.
                    Descriptors.shutdown(closed, Descriptors.SHUT_RDWR);
                }
            } finally {
                Descriptors.close(closed);
            }
        }
    }

    @Override
    protected final void doDisconnect() {
        throw new UnsupportedOperationException("a listening socket has no peer");
    }

    @Override
    protected final void doWrite(ChannelOutboundBuffer in) {
        throw new UnsupportedOperationException("a listening socket sends nothing");
    }

    @Override
    protected final Object filterOutboundMessage(Object message) {
        throw new UnsupportedOperationException("a listening socket sends nothing");
    }

    @Override
    protected final AbstractUnsafe newUnsafe() {
        return new ServerUnsafe();
    }

    private final class ServerUnsafe extends QuoitUnsafe {
        @Override
        public void connect(SocketAddress remoteAddress, SocketAddress localAddress, ChannelPromise promise) {
            promise.setFailure(new UnsupportedOperationException("a listening socket does not connect"));
        }
    }
}
