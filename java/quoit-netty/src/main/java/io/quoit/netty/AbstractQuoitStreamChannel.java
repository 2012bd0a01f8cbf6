package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.EventLoop;
import io.netty.channel.FileRegion;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;
import io.netty.channel.socket.DuplexChannel;
import io.netty.util.internal.StringUtil;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.channels.AlreadyBoundException;
import java.nio.channels.AlreadyConnectedException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ConnectionPendingException;
import java.nio.channels.NotYetConnectedException;
import java.nio.channels.UnsupportedAddressTypeException;

/** A connected socket: what TCP and Unix stream channels have in common. */
abstract class AbstractQuoitStreamChannel extends AbstractQuoitChannel implements DuplexChannel {
    private static final int NO_DESCRIPTOR = -1;

    private final Inbound inbound = new Inbound(this);
    private final Outbound outbound = new Outbound(this);
    /** Made with the first bytes: many a connection waits for long without any. */
    private ChannelCounters metrics;

    /** The socket's descriptor, for options and names; negative if there is none (any more). */
    private volatile int descriptor;
    /** The descriptor is an accepted one that no loop has yet. */
    private boolean unattached;
    /** The native connection; 0 if there is none yet, or no more. */
    private long connection;
    /** The library was asked for a connection, and has not said that it is gone. */
    private boolean wanted;

    /** Keeps the local address that {@code bind} was told, until the connect that uses it. */
    private int reservation = NO_DESCRIPTOR;

    private ChannelPromise connectPromise;
    private SocketAddress requestedRemote;

    private volatile boolean active;
    private volatile boolean inputShutdown;
    private volatile boolean outputShutdown;
    private boolean inputEndReported;
    /** The end of its connection; null before the close, and if that resets. */
    private GracefulEnd end;

    AbstractQuoitStreamChannel(Channel parent, int accepted, SocketAddress localAddress, SocketAddress remoteAddress) {
        super(parent);
        this.descriptor = accepted;
        this.unattached = accepted >= 0;
        this.active = unattached;
        this.local = localAddress;
        this.remote = remoteAddress;
    }

    AbstractQuoitStreamChannel() {
        this(null, NO_DESCRIPTOR, null, null);
    }

    @Override
    public abstract QuoitStreamConfig config();

    final Inbound inbound() {
        return inbound;
    }

    final Outbound outbound() {
        return outbound;
    }

    final ChannelCounters metrics() {
        if (metrics == null) {
            metrics = new ChannelCounters();
        }
        return metrics;
    }

    /**
     * What this channel has done.
     *
     * @return a snapshot; any thread may ask
     */
    public final QuoitChannelSnapshot snapshot() {
        ChannelOutboundBuffer buffer = unsafe().outboundBuffer();
        ChannelCounters counted = metrics;
        return (counted == null ? ChannelCounters.NONE : counted)
                .snapshot(buffer == null ? 0 : buffer.totalPendingWriteBytes());
    }

    final long connection() {
        return connection;
    }

    final void connection(long id) {
        if (connection == 0) {
            connection = id;
            if (!isOpen()) {
                // It was closed before it had an id.
                closeConnection();
                handler().hurry();
            }
        }
    }

    final int descriptor() {
        return descriptor;
    }

    final boolean readsIntoOwnBuffers() {
        return config().hasOwnReceiveAllocator();
    }

    @Override
    public final boolean isActive() {
        return active;
    }

    @Override
    final boolean isBoundToLoop() {
        return wanted;
    }

    // ---- beginning ----

    @Override
    void registered() {
        if (unattached && isOpen()) {
            int attaching = handler().attach(this, descriptor);
            // The loop's from now on; before, the close ends it.
            unattached = false;
            wanted = true;
            inbound.attaching(attaching);
        }
    }

    @Override
    protected void doBind(SocketAddress localAddress) throws Exception {
        checkFits(localAddress);
        if (connectPromise != null) {
            throw new ConnectionPendingException();
        }
        if (active || reservation >= 0) {
            throw new AlreadyBoundException();
        }
        int reserved = Descriptors.stream(Addresses.family(localAddress));
        try {
            if (Addresses.isUnix(localAddress)) {
                SocketFiles.removeDeaf(localAddress);
                Descriptors.bind(reserved, localAddress);
            } else {
                Descriptors.set(reserved, Descriptors.SOL_SOCKET, Descriptors.SO_REUSEADDR, 1);
                Descriptors.bind(reserved, localAddress);
            }
        } catch (Exception failure) {
            Descriptors.close(reserved);
            throw failure;
        }
        reservation = reserved;
        local = Descriptors.localAddress(reserved);
    }

    private void releaseReservation() {
        if (reservation >= 0) {
            Descriptors.close(reservation);
            reservation = NO_DESCRIPTOR;
        }
    }

    /** What connecting needs from the options. */
    abstract Connecting connecting(SocketAddress remoteAddress, SocketAddress localAddress);

    /** Whether addresses of the kind are those of this channel's sockets. */
    abstract boolean fits(SocketAddress address);

    private void checkFits(SocketAddress address) {
        checkResolved(address);
        if (address != null && !fits(address)) {
            throw new UnsupportedAddressTypeException();
        }
    }

    /** The loop has opened the connection. */
    final void opened() {
        if (!isOpen()) {
            return;
        }
        if (!active) {
            connected();
            if (!isOpen()) {
                return;
            }
        }
        inbound.opened();
        // Directions that were ended before there was anything to tell.
        if (inputShutdown) {
            endInput();
        }
        if (outputShutdown) {
            shutdownNative();
        }
        flushMore();
    }

    private void connected() {
        ChannelPromise promise = connectPromise;
        connectPromise = null;
        int opened = handler().descriptor(connection);
        try {
            ((AbstractQuoitConfig) config()).applyRest(opened, () -> descriptor = opened);
        } catch (ChannelException refused) {
            promise.tryFailure(refused);
            unsafe().close(unsafe().voidPromise());
            return;
        }
        local = Descriptors.localAddress(opened);
        remote = requestedRemote;
        active = true;
        // It may have been cancelled; what happened is told all the same, and then it is closed.
        boolean taken = promise.trySuccess();
        pipeline().fireChannelActive();
        if (!taken) {
            unsafe().close(unsafe().voidPromise());
        }
    }

    // ---- the end ----

    /** The loop says that the connection is gone. */
    final void ended(int reason, int error) {
        connection = 0;
        wanted = false;
        descriptor = NO_DESCRIPTOR;
        outbound.closed();
        if (end != null) {
            end.cancel();
        }
        if (!isOpen()) {
            return;
        }
        if (connectPromise != null) {
            ChannelPromise promise = connectPromise;
            connectPromise = null;
            IOException failure = Errno.connectFailure(reason, error, requestedRemote);
            promise.tryFailure(((StreamUnsafe) unsafe()).annotated(failure, requestedRemote));
            unsafe().close(unsafe().voidPromise());
        } else if (inbound.closed(reason, error)) {
            gone(reason, error);
        }
    }

    /** The connection is gone, and all that it received was read. */
    final void gone(int reason, int error) {
        IOException cause = Errno.closeCause(reason, error);
        if (!isOpen()) {
            return;
        }
        if (cause == null) {
            // Both directions had ended. Who allows half-closed connections closes the channel himself.
            if (!config().isAllowHalfClosure()) {
                unsafe().close(unsafe().voidPromise());
            }
            return;
        }
        StreamUnsafe unsafe = (StreamUnsafe) unsafe();
        if (hasPendingWrites()) {
            unsafe.failWrites(cause);
        }
        if (isOpen()) {
            if (!inputShutdown) {
                pipeline().fireExceptionCaught(cause);
            }
            unsafe.closeFor(cause);
        }
    }

    /** Sends are refused for good. */
    final void writeFailed(IOException cause) {
        if (isOpen()) {
            ((StreamUnsafe) unsafe()).failWrites(cause);
        }
    }

    /** The peer has ended its direction, and all that it sent was read. */
    final void inputEnded() {
        if (!inputShutdown) {
            if (!config().isAllowHalfClosure()) {
                unsafe().close(unsafe().voidPromise());
                return;
            }
            inputShutdown = true;
            pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        }
        if (isOpen() && !inputEndReported && config().isAllowHalfClosure()) {
            inputEndReported = true;
            pipeline().fireUserEventTriggered(ChannelInputShutdownReadComplete.INSTANCE);
        }
    }

    @Override
    protected void doDisconnect() throws Exception {
        doClose();
    }

    @Override
    protected void doClose() throws Exception {
        if (!markClosed()) {
            return;
        }
        active = false;
        inputShutdown = true;
        outputShutdown = true;
        ChannelPromise promise = connectPromise;
        if (promise != null) {
            connectPromise = null;
            promise.tryFailure(new ClosedChannelException());
        }
        inbound.release();
        outbound.end();
        if (unattached) {
            unattached = false;
            Descriptors.close(descriptor);
        }
        descriptor = NO_DESCRIPTOR;
        releaseReservation();
        if (connection == 0) {
            // One that is being made is ended when its id is known.
            return;
        }
        closeConnection();
    }

    /** As {@code close(2)} does: with SO_LINGER at 0 by a reset, otherwise after what was sent. */
    private void closeConnection() {
        int linger = config().linger();
        if (linger == 0) {
            handler().commands().simple(Abi.COMMAND_ABORT, connection);
            return;
        }
        end = new GracefulEnd(this, linger);
        outbound.afterAll(end);
    }

    /** What ends the connection of a closed channel cannot begin before the peer makes room. */
    final void endWaits() {
        if (end != null) {
            end.awaitRoom();
        }
    }

    // ---- half-close ----

    @Override
    public final boolean isInputShutdown() {
        return inputShutdown;
    }

    @Override
    public final boolean isOutputShutdown() {
        return outputShutdown;
    }

    @Override
    public final boolean isShutdown() {
        return inputShutdown && outputShutdown;
    }

    @Override
    protected void doShutdownOutput() throws Exception {
        if (!active) {
            throw new NotYetConnectedException();
        }
        outputShutdown = true;
        outbound.end();
        if (connection != 0) {
            shutdownNative();
        }
    }

    private void shutdownNative() {
        outbound.afterAll(() -> {
            if (connection != 0) {
                handler().commands().simple(Abi.COMMAND_SHUTDOWN, connection);
            }
        });
    }

    @Override
    public final ChannelFuture shutdownOutput() {
        return shutdownOutput(newPromise());
    }

    @Override
    public final ChannelFuture shutdownOutput(ChannelPromise promise) {
        onLoop(() -> ((AbstractUnsafe) unsafe()).shutdownOutput(promise));
        return promise;
    }

    @Override
    public final ChannelFuture shutdownInput() {
        return shutdownInput(newPromise());
    }

    @Override
    public final ChannelFuture shutdownInput(ChannelPromise promise) {
        onLoop(() -> shutdownInput0(promise));
        return promise;
    }

    private void shutdownInput0(ChannelPromise promise) {
        if (!isOpen()) {
            promise.setFailure(new ClosedChannelException());
            return;
        }
        try {
            if (connection == 0 && !active) {
                throw new NotYetConnectedException();
            }
            inputShutdown = true;
            if (connection != 0) {
                Descriptors.shutdown(descriptor, Descriptors.SHUT_RD);
            }
            promise.setSuccess();
        } catch (Exception failure) {
            promise.setFailure(failure);
        }
    }

    private void endInput() {
        try {
            Descriptors.shutdown(handler().descriptor(connection), Descriptors.SHUT_RD);
        } catch (IOException gone) {
            // Its end is told by itself.
        }
    }

    @Override
    public final ChannelFuture shutdown() {
        return shutdown(newPromise());
    }

    @Override
    public final ChannelFuture shutdown(ChannelPromise promise) {
        ChannelFuture output = shutdownOutput();
        output.addListener(ignored -> shutdownInput().addListener(input -> {
            Throwable failure = output.cause() != null ? output.cause() : input.cause();
            if (failure != null) {
                promise.setFailure(failure);
            } else {
                promise.setSuccess();
            }
        }));
        return promise;
    }

    private void onLoop(Runnable task) {
        EventLoop loop = eventLoop();
        if (loop.inEventLoop()) {
            task.run();
        } else {
            loop.execute(task);
        }
    }

    // ---- reading and writing ----

    @Override
    protected void doBeginRead() throws Exception {
        inbound.read();
    }

    @Override
    final void clearRead() {
        inbound.clearRead();
    }

    @Override
    protected void doWrite(ChannelOutboundBuffer in) throws Exception {
        // There may be no connection any more.
        inbound.giveUpLater();
        outbound.write(in);
    }

    /** Sends what is flushed and was not sent yet. */
    final void flushMore() {
        if (isOpen()) {
            ((StreamUnsafe) unsafe()).flushMore();
        }
    }

    /** Whether something is flushed and has not left. */
    final boolean hasPendingWrites() {
        return ((StreamUnsafe) unsafe()).hasPendingWrites();
    }

    /** Fails for a file that is shorter than its region says. */
    final void validate(FileRegion region, long position) throws IOException {
        if (region instanceof DefaultFileRegion file) {
            validateFileRegion(file, position);
        }
    }

    @Override
    protected Object filterOutboundMessage(Object message) {
        PendingWritesException.check(unsafe().outboundBuffer(), config().pendingWriteLimit());
        if (message instanceof ByteBuf bytes) {
            return isDirect(bytes) ? bytes : DirectCopy.of(bytes, alloc());
        }
        if (message instanceof FileRegion) {
            return message;
        }
        throw new UnsupportedOperationException("unsupported message type: " + StringUtil.simpleClassName(message)
                + " (expected: ByteBuf, FileRegion)");
    }

    /** Whether all of its bytes are in native memory. */
    private static boolean isDirect(ByteBuf bytes) {
        if (bytes.hasMemoryAddress()) {
            return true;
        }
        return bytes.isDirect() && bytes.nioBufferCount() > 0;
    }

    @Override
    protected AbstractUnsafe newUnsafe() {
        return new StreamUnsafe();
    }

    /** Connects, and opens to the channel what Netty keeps for its unsafes. */
    final class StreamUnsafe extends QuoitUnsafe {
        @Override
        public void connect(SocketAddress remoteAddress, SocketAddress localAddress, ChannelPromise promise) {
            // An attempt can be cancelled, so the promise stays cancellable.
            if (promise.isDone() || !ensureOpen(promise)) {
                return;
            }
            try {
                checkFits(remoteAddress);
                checkFits(localAddress);
                if (connectPromise != null) {
                    throw new ConnectionPendingException();
                }
                if (active) {
                    throw new AlreadyConnectedException();
                }
                SocketAddress from = localAddress != null ? localAddress : local;
                Connecting request = connecting(remoteAddress, from);
                releaseReservation();
                // What a reservation has made is one, too.
                SocketFiles.removeDeaf(from);
                handler().connect(AbstractQuoitStreamChannel.this, request);
                connectPromise = promise;
                requestedRemote = remoteAddress;
                wanted = true;
                promise.addListener(future -> {
                    if (future.isCancelled()) {
                        connectPromise = null;
                        close(voidPromise());
                    }
                });
            } catch (Throwable failure) {
                promise.tryFailure(annotateConnectException(failure, remoteAddress));
                closeIfClosed();
            }
        }

        Throwable annotated(IOException failure, SocketAddress remoteAddress) {
            // It has the address already, and would come out as a plain ConnectException.
            return failure instanceof ConnectTimeoutException
                    ? failure
                    : annotateConnectException(failure, remoteAddress);
        }

        void flushMore() {
            super.flush0();
        }

        boolean hasPendingWrites() {
            ChannelOutboundBuffer buffer = outboundBuffer();
            return buffer != null && !buffer.isEmpty();
        }

        void failWrites(IOException cause) {
            handleWriteError(cause);
        }

        void closeFor(IOException cause) {
            ClosedChannelException closed = new ClosedChannelException();
            closed.initCause(cause);
            close(voidPromise(), cause, closed);
        }
    }
}
