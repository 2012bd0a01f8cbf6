package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.AddressedEnvelope;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelMetadata;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.util.NetUtil;
import io.netty.util.internal.StringUtil;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.SocketAddress;
import java.net.SocketException;
import java.nio.channels.AlreadyConnectedException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.NotYetConnectedException;
import java.nio.channels.UnsupportedAddressTypeException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/**
 * A UDP socket on Quoit, for event loops of {@link QuoitIoHandler}. It takes {@link DatagramPacket}s (also those of
 * {@code SegmentedDatagramPacket}, which the kernel cuts), envelopes, and when connected plain buffers; it hands out
 * {@link DatagramPacket}s whose bytes lie in the socket's own receive memory until they are released.
 *
 * <p>{@code close} takes effect at once, and is done when what was sent before has left and the port is free again; or
 * earlier, if the event loop ends.
 */
public final class QuoitDatagramChannel extends AbstractQuoitChannel implements DatagramChannel {
    private static final ChannelMetadata METADATA = new ChannelMetadata(true, 16);
    private static final int NO_DESCRIPTOR = -1;

    private final DatagramInbound inbound = new DatagramInbound(this);
    private final DatagramOutbound outbound = new DatagramOutbound(this);
    private final ChannelCounters metrics = new ChannelCounters();
    private final QuoitDatagramChannelConfig config;
    private final int family;

    private volatile int descriptor;
    private volatile boolean active;
    /** The address that {@code bind} was told of, as the kernel has it; null if it chose the port by itself. */
    private InetSocketAddress bound;
    /** The library's id; 0 if there is none yet, or no more. */
    private long socket;
    /** The library was told to close the socket. */
    private boolean socketCloses;
    /** The rest of Netty's close, while the library has the socket still. */
    private Runnable closing;

    /**
     * A socket for IPv6 and IPv4, or for IPv4 alone where there is no IPv6 or {@code java.net.preferIPv4Stack} is set.
     *
     * @throws ChannelException if no socket can be had
     */
    public QuoitDatagramChannel() {
        this((SocketProtocolFamily) null);
    }

    /**
     * A socket of a family.
     *
     * @param family {@code INET}, or {@code INET6}, which takes IPv4 as well; null chooses as {@link #QuoitDatagramChannel()}
     * @throws ChannelException if no socket can be had
     * @throws UnsupportedOperationException if Quoit cannot be used here, or has no datagrams of the family
     */
    public QuoitDatagramChannel(SocketProtocolFamily family) {
        super(null);
        if (family != null && family != SocketProtocolFamily.INET && family != SocketProtocolFamily.INET6) {
            throw new UnsupportedOperationException("Quoit's datagram channels are of INET or INET6, not " + family);
        }
        boolean six = family == null ? !NetUtil.isIpV4StackPreferred() : family == SocketProtocolFamily.INET6;
        try {
            int made;
            try {
                made = Descriptors.datagram(six ? Addresses.AF_INET6 : Addresses.AF_INET);
            } catch (IOException withoutIpv6) {
                if (family != null || !six) {
                    throw withoutIpv6;
                }
                six = false;
                made = Descriptors.datagram(Addresses.AF_INET);
            }
            descriptor = made;
        } catch (IOException failure) {
            throw new ChannelException(failure);
        }
        this.family = six ? Addresses.AF_INET6 : Addresses.AF_INET;
        config = new QuoitDatagramChannelConfig(this);
    }

    @Override
    public QuoitDatagramChannelConfig config() {
        return config;
    }

    @Override
    public ChannelMetadata metadata() {
        return METADATA;
    }

    DatagramInbound inbound() {
        return inbound;
    }

    DatagramOutbound outbound() {
        return outbound;
    }

    ChannelCounters metrics() {
        return metrics;
    }

    /**
     * What this channel has done.
     *
     * @return a snapshot; any thread may ask
     */
    public QuoitChannelSnapshot snapshot() {
        ChannelOutboundBuffer buffer = unsafe().outboundBuffer();
        return metrics.snapshot(buffer == null ? 0 : buffer.totalPendingWriteBytes());
    }

    long socket() {
        return socket;
    }

    int descriptor() {
        return descriptor;
    }

    int family() {
        return family;
    }

    @Override
    public boolean isActive() {
        return active && isOpen();
    }

    @Override
    public boolean isConnected() {
        return remote != null && isOpen();
    }

    @Override
    boolean isBoundToLoop() {
        return socket != 0;
    }

    @Override
    public InetSocketAddress localAddress() {
        InetSocketAddress known = (InetSocketAddress) local;
        if (active && known != null && known.getPort() == 0) {
            // A port was chosen when something was sent first.
            int open = descriptor;
            known = open < 0 ? known : (InetSocketAddress) Descriptors.localAddress(open);
            local = known;
        }
        return known;
    }

    @Override
    public InetSocketAddress remoteAddress() {
        return (InetSocketAddress) remote;
    }

    // ---- beginning ----

    @Override
    void registered() {
        if (config.isActiveOnRegistration() && isOpen()) {
            open();
        }
    }

    /** Gives the socket to the loop, unless it has it. */
    private void open() {
        if (socket == 0) {
            int given = descriptor;
            // The library closes it, also if it refuses it.
            descriptor = NO_DESCRIPTOR;
            socket = handler().datagrams().open(this, given);
            descriptor = given;
            inbound.opened(handler().datagrams().pool(this));
        }
        local = Descriptors.localAddress(descriptor);
        active = true;
    }

    private InetSocketAddress fitting(SocketAddress address) {
        checkResolved(address);
        if (address instanceof InetSocketAddress inet) {
            return Addresses.of(family, inet);
        }
        throw new UnsupportedAddressTypeException();
    }

    @Override
    protected void doBind(SocketAddress address) throws Exception {
        Descriptors.bind(descriptor, fitting(address));
        bound = Addresses.of(family, (InetSocketAddress) Descriptors.localAddress(descriptor));
        open();
    }

    @Override
    protected void doDisconnect() throws Exception {
        if (!isConnected()) {
            return;
        }
        Descriptors.disconnectDatagram(descriptor);
        remote = null;
        if (bound != null && ((InetSocketAddress) Descriptors.localAddress(descriptor)).getPort() != bound.getPort()) {
            // Linux forgets a port that it has chosen itself.
            Descriptors.bind(descriptor, bound);
        }
        local = Descriptors.localAddress(descriptor);
    }

    // ---- the end ----

    /** The socket is gone, with or without the loop. */
    void ended(int error) {
        socket = 0;
        outbound.closed();
        finishClosing();
        if (isOpen()) {
            descriptor = NO_DESCRIPTOR;
            if (error != 0) {
                pipeline().fireExceptionCaught(Errno.datagramFailure(error));
            }
            unsafe().close(unsafe().voidPromise());
        }
    }

    /** Something went wrong, and the socket goes on: mostly, an earlier datagram did not arrive. */
    void failed(IOException failure) {
        if (isOpen()) {
            inbound.failed(failure);
        }
    }

    @Override
    protected void doClose() throws Exception {
        beginClosing();
    }

    private void beginClosing() {
        if (!markClosed()) {
            return;
        }
        active = false;
        inbound.release();
        outbound.end();
        int closed = descriptor;
        descriptor = NO_DESCRIPTOR;
        if (socket != 0 && outbound.hasRest()) {
            // No longer than the library would wait.
            eventLoop().schedule(this::closeSocket, handler().config().closeDeadlineNanos(), TimeUnit.NANOSECONDS);
        } else if (socket != 0) {
            closeSocket();
        } else if (closed >= 0) {
            Descriptors.close(closed);
        }
    }

    /** Has the library send what it has, and close the socket. */
    void closeSocket() {
        if (socket != 0 && !socketCloses) {
            socketCloses = true;
            handler().commands().simple(Abi.COMMAND_CLOSE_DATAGRAM, socket);
            handler().hurry();
        }
    }

    private void finishClosing() {
        Runnable rest = closing;
        closing = null;
        if (rest != null) {
            rest.run();
        }
    }

    // ---- reading and writing ----

    @Override
    protected void doBeginRead() throws Exception {
        inbound.read();
    }

    @Override
    void clearRead() {
        inbound.clearRead();
    }

    @Override
    protected void doWrite(ChannelOutboundBuffer in) throws Exception {
        outbound.write(in);
    }

    /** Sends what is flushed and was not sent yet. */
    void flushMore() {
        if (isOpen()) {
            ((DatagramUnsafe) unsafe()).flushMore();
        }
    }

    @Override
    protected Object filterOutboundMessage(Object message) {
        PendingWritesException.check(unsafe().outboundBuffer(), config.pendingWriteLimit());
        if (message instanceof DatagramPacket packet && packet.recipient() != null) {
            checkResolved(packet.recipient());
            ByteBuf content = packet.content();
            return isLendable(content) ? packet : packet.replace(DirectCopy.of(content, alloc()));
        }
        if (message instanceof ByteBuf bytes) {
            return connectedOnly(bytes);
        }
        if (message instanceof AddressedEnvelope<?, ?> envelope && envelope.content() instanceof ByteBuf content) {
            return unwrapped(envelope, content);
        }
        throw new UnsupportedOperationException("unsupported message type: " + StringUtil.simpleClassName(message)
                + " (expected: DatagramPacket, AddressedEnvelope<ByteBuf, InetSocketAddress>, ByteBuf)");
    }

    private Object unwrapped(AddressedEnvelope<?, ?> envelope, ByteBuf content) {
        if (envelope.recipient() == null) {
            return connectedOnly(content);
        }
        if (!(envelope.recipient() instanceof InetSocketAddress to)) {
            throw new UnsupportedAddressTypeException();
        }
        checkResolved(to);
        return new DatagramPacket(isLendable(content) ? content : DirectCopy.of(content, alloc()), to);
    }

    private Object connectedOnly(ByteBuf bytes) {
        if (remote == null) {
            throw new NotYetConnectedException();
        }
        if (!bytes.isReadable()) {
            // By itself, the queue could not tell it from a write that was cancelled.
            return new DatagramPacket(bytes, remoteAddress());
        }
        return isLendable(bytes) ? bytes : DirectCopy.of(bytes, alloc());
    }

    /** Whether its bytes are in one piece of native memory. */
    private static boolean isLendable(ByteBuf bytes) {
        return bytes.hasMemoryAddress() || bytes.isDirect() && bytes.nioBufferCount() == 1;
    }

    // ---- groups ----

    @Override
    public ChannelFuture joinGroup(InetAddress group) {
        return joinGroup(group, newPromise());
    }

    @Override
    public ChannelFuture joinGroup(InetAddress group, ChannelPromise promise) {
        return joinGroup(group, null, null, promise);
    }

    @Override
    public ChannelFuture joinGroup(InetSocketAddress group, NetworkInterface via) {
        return joinGroup(group, via, newPromise());
    }

    @Override
    public ChannelFuture joinGroup(InetSocketAddress group, NetworkInterface via, ChannelPromise promise) {
        return joinGroup(group.getAddress(), via, null, promise);
    }

    @Override
    public ChannelFuture joinGroup(InetAddress group, NetworkInterface via, InetAddress source) {
        return joinGroup(group, via, source, newPromise());
    }

    @Override
    public ChannelFuture joinGroup(InetAddress group, NetworkInterface via, InetAddress source, ChannelPromise promise) {
        return change(source == null ? Multicast.JOIN : Multicast.JOIN_SOURCE, group, via, source, promise);
    }

    @Override
    public ChannelFuture leaveGroup(InetAddress group) {
        return leaveGroup(group, newPromise());
    }

    @Override
    public ChannelFuture leaveGroup(InetAddress group, ChannelPromise promise) {
        return leaveGroup(group, null, null, promise);
    }

    @Override
    public ChannelFuture leaveGroup(InetSocketAddress group, NetworkInterface via) {
        return leaveGroup(group, via, newPromise());
    }

    @Override
    public ChannelFuture leaveGroup(InetSocketAddress group, NetworkInterface via, ChannelPromise promise) {
        return leaveGroup(group.getAddress(), via, null, promise);
    }

    @Override
    public ChannelFuture leaveGroup(InetAddress group, NetworkInterface via, InetAddress source) {
        return leaveGroup(group, via, source, newPromise());
    }

    @Override
    public ChannelFuture leaveGroup(
            InetAddress group, NetworkInterface via, InetAddress source, ChannelPromise promise) {
        return change(source == null ? Multicast.LEAVE : Multicast.LEAVE_SOURCE, group, via, source, promise);
    }

    @Override
    public ChannelFuture block(InetAddress group, NetworkInterface via, InetAddress source) {
        return block(group, via, source, newPromise());
    }

    @Override
    public ChannelFuture block(InetAddress group, NetworkInterface via, InetAddress source, ChannelPromise promise) {
        return change(Multicast.BLOCK, group, via, source, promise);
    }

    @Override
    public ChannelFuture block(InetAddress group, InetAddress source) {
        return block(group, source, newPromise());
    }

    @Override
    public ChannelFuture block(InetAddress group, InetAddress source, ChannelPromise promise) {
        return block(group, null, source, promise);
    }

    private ChannelFuture change(
            int call, InetAddress group, NetworkInterface via, InetAddress source, ChannelPromise promise) {
        Runnable task = () -> {
            try {
                if (!isOpen()) {
                    throw new ClosedChannelException();
                }
                Multicast.change(descriptor, call, group, via != null ? via : usualInterface(), source);
                promise.setSuccess();
            } catch (Exception failure) {
                promise.setFailure(failure);
            }
        };
        if (eventLoop().inEventLoop()) {
            task.run();
        } else {
            eventLoop().execute(task);
        }
        return promise;
    }

    /** The interface that multicast was set to, or that has the address that this socket is bound to; or null. */
    private NetworkInterface usualInterface() throws SocketException {
        NetworkInterface set = config.getNetworkInterface();
        InetSocketAddress own = localAddress();
        if (set != null || own == null || own.getAddress().isAnyLocalAddress()) {
            return set;
        }
        return NetworkInterface.getByInetAddress(own.getAddress());
    }

    @Override
    protected AbstractUnsafe newUnsafe() {
        return new DatagramUnsafe();
    }

    private final class DatagramUnsafe extends QuoitUnsafe {
        @Override
        public void connect(SocketAddress remoteAddress, SocketAddress localAddress, ChannelPromise promise) {
            if (!promise.setUncancellable() || !ensureOpen(promise)) {
                return;
            }
            boolean wasActive = isActive();
            try {
                checkResolved(remoteAddress);
                if (remote != null) {
                    throw new AlreadyConnectedException();
                }
            } catch (Throwable failure) {
                promise.tryFailure(annotateConnectException(failure, remoteAddress));
                return;
            }
            try {
                if (localAddress != null) {
                    doBind(localAddress);
                }
                Descriptors.connectDatagram(descriptor, fitting(remoteAddress));
                open();
                remote = Descriptors.remoteAddress(descriptor);
            } catch (Throwable failure) {
                // As Netty's own transports do: nobody is told that it is inactive.
                beginClosing();
                promise.tryFailure(annotateConnectException(failure, remoteAddress));
                closeIfClosed();
                return;
            }
            promise.trySuccess();
            if (!wasActive && isActive()) {
                pipeline().fireChannelActive();
            }
        }

        /** Netty's promises and events of a close follow when the library tells that the socket is gone. */
        @Override
        protected Executor prepareToClose() {
            if (socket == 0) {
                return null;
            }
            beginClosing();
            return rest -> closing = rest;
        }

        /** The loop ends, and may tell nothing more. */
        @Override
        public void close() {
            super.close();
            outbound.letGo();
            closeSocket();
            finishClosing();
        }

        void flushMore() {
            super.flush0();
        }
    }
}
