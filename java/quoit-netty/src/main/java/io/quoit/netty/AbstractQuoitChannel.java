package io.quoit.netty;

import io.netty.channel.AbstractChannel;
import io.netty.channel.Channel;
import io.netty.channel.ChannelMetadata;
import io.netty.channel.ChannelPromise;
import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoRegistration;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.channels.UnresolvedAddressException;

/** What Quoit's channels have in common: registration, state and addresses. */
abstract class AbstractQuoitChannel extends AbstractChannel {
    private static final ChannelMetadata METADATA = new ChannelMetadata(false, 16);

    private IoRegistration registration;
    private QuoitIoHandler handler;

    private volatile boolean closed;
    volatile SocketAddress local;
    volatile SocketAddress remote;

    AbstractQuoitChannel(Channel parent) {
        super(parent);
    }

    /** The handler of the loop that this channel is registered with. */
    final QuoitIoHandler handler() {
        return handler;
    }

    @Override
    public ChannelMetadata metadata() {
        return METADATA;
    }

    @Override
    public final boolean isOpen() {
        return !closed;
    }

    /** Returns whether it was open. */
    final boolean markClosed() {
        boolean wasOpen = !closed;
        closed = true;
        return wasOpen;
    }

    @Override
    protected final boolean isCompatible(EventLoop loop) {
        // Of another transport's loop doRegister says what is wrong; Netty would name the loop's class only.
        return loop instanceof IoEventLoop;
    }

    @Override
    protected void doRegister(ChannelPromise promise) {
        if (!((IoEventLoop) eventLoop()).isCompatible(QuoitUnsafe.class)) {
            promise.setFailure(new IllegalStateException(getClass().getSimpleName()
                    + " needs an event loop of Quoit's: make the group with QuoitIoHandler.newFactory(), or take both, group "
                    + "and channel class, from Quoit.transport()"));
            return;
        }
        ((IoEventLoop) eventLoop()).register((QuoitUnsafe) unsafe()).addListener(future -> {
            if (!future.isSuccess()) {
                promise.setFailure(future.cause());
                return;
            }
            registration = (IoRegistration) future.getNow();
            handler = registration.attachment();
            try {
                registered();
            } catch (Throwable failure) {
                // To Netty the channel was never registered: nobody else cancels it.
                registration.cancel();
                registration = null;
                promise.setFailure(failure);
                return;
            }
            promise.setSuccess();
        });
    }

    /** The loop is known now. */
    void registered() throws Exception {}

    /**
     * {@inheritDoc} What is native cannot leave its loop: a channel that has a connection, or is bound, is closed.
     */
    @Override
    protected void doDeregister() throws Exception {
        if (registration != null) {
            if (isOpen() && isBoundToLoop()) {
                unsafe().close(unsafe().voidPromise());
            }
            registration.cancel();
            registration = null;
        }
    }

    /** autoRead was turned off, by any thread: the read that it has asked for last is not wanted any more. */
    final void clearReadLater() {
        if (!isRegistered() || eventLoop().inEventLoop()) {
            clearRead();
            return;
        }
        eventLoop().execute(() -> {
            // It may be on again, and have asked for another.
            if (!config().isAutoRead()) {
                clearRead();
            }
        });
    }

    /** Nobody wants to read before the next {@code read()}. */
    abstract void clearRead();

    /** Whether something of this channel lives in the native loop. */
    abstract boolean isBoundToLoop();

    @Override
    protected final SocketAddress localAddress0() {
        return local;
    }

    @Override
    protected final SocketAddress remoteAddress0() {
        return remote;
    }

    static void checkResolved(SocketAddress address) {
        if (address instanceof InetSocketAddress inet && inet.isUnresolved()) {
            throw new UnresolvedAddressException();
        }
    }

    /** The part of a channel that its loop knows. */
    abstract class QuoitUnsafe extends AbstractUnsafe implements QuoitIoHandle {
        /** Closes the channel because its loop ends. */
        @Override
        public void close() {
            close(voidPromise());
        }

        @Override
        public final void handle(IoRegistration source, IoEvent event) {
            throw new UnsupportedOperationException("Quoit's loops call their channels by methods of their own");
        }
    }
}
