package io.quoit.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelOption;
import io.netty.channel.MessageSizeEstimator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.DatagramChannelConfig;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.util.EnumSet;
import java.util.Enumeration;
import java.util.Map;
import java.util.Set;

/**
 * Options of a {@link QuoitDatagramChannel}: those of {@link DatagramChannelConfig} and, of {@link QuoitChannelOption}, the
 * ones for datagrams, {@code SO_REUSEPORT}, {@code SO_BUSY_POLL}, {@code IP_FREEBIND}, {@code IP_TRANSPARENT} and
 * {@code PENDING_WRITE_LIMIT}. A {@code RECVBUF_ALLOCATOR} makes the channel copy what it receives into that allocator's
 * buffers, of which each gets one datagram; what does not fit is lost, as with Netty's other transports.
 */
public final class QuoitDatagramChannelConfig extends AbstractQuoitConfig implements DatagramChannelConfig {
    private static final EnumSet<KernelOption> SUPPORTED = EnumSet.of(
            KernelOption.SEND_BUFFER,
            KernelOption.RECEIVE_BUFFER,
            KernelOption.REUSE_ADDRESS,
            KernelOption.REUSE_PORT,
            KernelOption.BROADCAST,
            KernelOption.BUSY_POLL,
            KernelOption.TYPE_OF_SERVICE,
            KernelOption.FREE_BIND,
            KernelOption.TRANSPARENT);

    private static final int MAX_PAYLOAD = 65_527;
    private static final int JOINED_BYTES = 1 << 16;
    private static final int MAX_SLOTS = 1 << 15;
    private static final int DEFAULT_SLOTS = 64;

    private final QuoitDatagramChannel channel;
    private volatile int maxDatagram = MAX_PAYLOAD;
    private volatile int slots = DEFAULT_SLOTS;
    private volatile boolean joins;
    private volatile boolean tellsUnreachable;
    private volatile boolean activeOnRegistration;
    private volatile long pendingWriteLimit;
    private volatile NetworkInterface leavesBy;

    QuoitDatagramChannelConfig(QuoitDatagramChannel channel) {
        super(channel);
        this.channel = channel;
    }

    @Override
    Set<KernelOption> supported() {
        return SUPPORTED;
    }

    @Override
    int descriptor() {
        return channel.descriptor();
    }

    @Override
    int family() {
        return channel.family();
    }

    int maxDatagram() {
        return maxDatagram;
    }

    int slots() {
        return slots;
    }

    /** Whether the kernel may join datagrams. */
    boolean joins() {
        return joins;
    }

    /** Whether each receiver is told that could not be reached. */
    boolean tellsUnreachable() {
        return tellsUnreachable;
    }

    /** Bytes that one slot has room for. */
    int slotSize() {
        return joins ? JOINED_BYTES : maxDatagram;
    }

    boolean isActiveOnRegistration() {
        return activeOnRegistration;
    }

    long pendingWriteLimit() {
        return pendingWriteLimit;
    }

    // ---- of the kernel ----

    @Override
    public int getSendBufferSize() {
        return get(KernelOption.SEND_BUFFER);
    }

    @Override
    public QuoitDatagramChannelConfig setSendBufferSize(int value) {
        set(KernelOption.SEND_BUFFER, value);
        return this;
    }

    @Override
    public int getReceiveBufferSize() {
        return get(KernelOption.RECEIVE_BUFFER);
    }

    @Override
    public QuoitDatagramChannelConfig setReceiveBufferSize(int value) {
        set(KernelOption.RECEIVE_BUFFER, value);
        return this;
    }

    @Override
    public int getTrafficClass() {
        return get(KernelOption.TYPE_OF_SERVICE);
    }

    @Override
    public QuoitDatagramChannelConfig setTrafficClass(int value) {
        set(KernelOption.TYPE_OF_SERVICE, value);
        return this;
    }

    @Override
    public boolean isReuseAddress() {
        return flag(KernelOption.REUSE_ADDRESS);
    }

    @Override
    public QuoitDatagramChannelConfig setReuseAddress(boolean value) {
        set(KernelOption.REUSE_ADDRESS, value);
        return this;
    }

    @Override
    public boolean isBroadcast() {
        return flag(KernelOption.BROADCAST);
    }

    @Override
    public QuoitDatagramChannelConfig setBroadcast(boolean value) {
        set(KernelOption.BROADCAST, value);
        return this;
    }

    private boolean six() {
        return channel.family() == Addresses.AF_INET6;
    }

    /** Sets an option that each family has of its own; a socket for both has both. */
    private void setBoth(int name, int sixName, int value) {
        Descriptors.set(descriptor(), Descriptors.IPPROTO_IP, name, value);
        if (six()) {
            Descriptors.set(descriptor(), Descriptors.IPPROTO_IPV6, sixName, value);
        }
    }

    private int getOwn(int name, int sixName) {
        return six()
                ? Descriptors.get(descriptor(), Descriptors.IPPROTO_IPV6, sixName)
                : Descriptors.get(descriptor(), Descriptors.IPPROTO_IP, name);
    }

    @Override
    public boolean isLoopbackModeDisabled() {
        return getOwn(Descriptors.IP_MULTICAST_LOOP, Descriptors.IPV6_MULTICAST_LOOP) == 0;
    }

    @Override
    public QuoitDatagramChannelConfig setLoopbackModeDisabled(boolean disabled) {
        setBoth(Descriptors.IP_MULTICAST_LOOP, Descriptors.IPV6_MULTICAST_LOOP, disabled ? 0 : 1);
        return this;
    }

    @Override
    public int getTimeToLive() {
        return getOwn(Descriptors.IP_MULTICAST_TTL, Descriptors.IPV6_MULTICAST_HOPS);
    }

    /**
     * {@inheritDoc} It is that of multicast.
     */
    @Override
    public QuoitDatagramChannelConfig setTimeToLive(int hops) {
        setBoth(Descriptors.IP_MULTICAST_TTL, Descriptors.IPV6_MULTICAST_HOPS, hops);
        return this;
    }

    private boolean isMulticastAll() {
        return getOwn(Descriptors.IP_MULTICAST_ALL, Descriptors.IPV6_MULTICAST_ALL) != 0;
    }

    private void setMulticastAll(boolean all) {
        setBoth(Descriptors.IP_MULTICAST_ALL, Descriptors.IPV6_MULTICAST_ALL, all ? 1 : 0);
    }

    @Override
    public InetAddress getInterface() {
        NetworkInterface set = leavesBy;
        if (set == null) {
            return null;
        }
        Enumeration<InetAddress> addresses = set.getInetAddresses();
        return addresses.hasMoreElements() ? addresses.nextElement() : null;
    }

    @Override
    public QuoitDatagramChannelConfig setInterface(InetAddress address) {
        try {
            return setNetworkInterface(NetworkInterface.getByInetAddress(address));
        } catch (SocketException failure) {
            throw new ChannelException(failure);
        }
    }

    @Override
    public NetworkInterface getNetworkInterface() {
        return leavesBy;
    }

    @Override
    public QuoitDatagramChannelConfig setNetworkInterface(NetworkInterface networkInterface) {
        Multicast.leaveBy(descriptor(), six(), networkInterface);
        leavesBy = networkInterface;
        return this;
    }

    // ---- as Netty has them ----

    @Override
    @SuppressWarnings("deprecation")
    public Map<ChannelOption<?>, Object> getOptions() {
        return getOptions(
                super.getOptions(),
                ChannelOption.IP_MULTICAST_LOOP_DISABLED,
                ChannelOption.IP_MULTICAST_ADDR,
                ChannelOption.IP_MULTICAST_IF,
                ChannelOption.IP_MULTICAST_TTL,
                ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION,
                QuoitChannelOption.IP_MULTICAST_ALL,
                QuoitChannelOption.IP_RECVERR,
                QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE,
                QuoitChannelOption.UDP_GRO,
                QuoitChannelOption.DATAGRAM_SLOTS,
                QuoitChannelOption.PENDING_WRITE_LIMIT);
    }

    @Override
    @SuppressWarnings({"unchecked", "deprecation"})
    public <T> T getOption(ChannelOption<T> option) {
        Object value;
        if (option == ChannelOption.IP_MULTICAST_LOOP_DISABLED) {
            value = isLoopbackModeDisabled();
        } else if (option == ChannelOption.IP_MULTICAST_ADDR) {
            checkOpen();
            value = getInterface();
        } else if (option == ChannelOption.IP_MULTICAST_IF) {
            checkOpen();
            value = leavesBy;
        } else if (option == ChannelOption.IP_MULTICAST_TTL) {
            value = getTimeToLive();
        } else if (option == ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION) {
            value = activeOnRegistration;
        } else if (option == QuoitChannelOption.IP_MULTICAST_ALL) {
            value = isMulticastAll();
        } else if (option == QuoitChannelOption.IP_RECVERR) {
            value = tellsUnreachable;
        } else if (option == QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE) {
            value = maxDatagram;
        } else if (option == QuoitChannelOption.UDP_GRO) {
            value = joins;
        } else if (option == QuoitChannelOption.DATAGRAM_SLOTS) {
            value = slots;
        } else if (option == QuoitChannelOption.PENDING_WRITE_LIMIT) {
            value = pendingWriteLimit;
        } else {
            return super.getOption(option);
        }
        return (T) value;
    }

    @Override
    @SuppressWarnings("deprecation")
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        if (option == ChannelOption.IP_MULTICAST_LOOP_DISABLED) {
            setLoopbackModeDisabled((Boolean) value);
        } else if (option == ChannelOption.IP_MULTICAST_ADDR) {
            setInterface((InetAddress) value);
        } else if (option == ChannelOption.IP_MULTICAST_IF) {
            setNetworkInterface((NetworkInterface) value);
        } else if (option == ChannelOption.IP_MULTICAST_TTL) {
            setTimeToLive((Integer) value);
        } else if (option == ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION) {
            if (channel.isRegistered()) {
                throw new IllegalStateException("DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION must be set before the registration");
            }
            activeOnRegistration = (Boolean) value;
        } else if (option == QuoitChannelOption.IP_MULTICAST_ALL) {
            setMulticastAll((Boolean) value);
        } else if (option == QuoitChannelOption.IP_RECVERR) {
            tellsUnreachable = early(option, (Boolean) value ? 1 : 0, 0, 1) != 0;
        } else if (option == QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE) {
            // As for Netty's epoll transport, which sets no upper bound, and is given 0 for its default.
            int most = early(option, (Integer) value, 0, Integer.MAX_VALUE);
            maxDatagram = most == 0 ? MAX_PAYLOAD : Math.min(most, MAX_PAYLOAD);
        } else if (option == QuoitChannelOption.UDP_GRO) {
            joins = early(option, (Boolean) value ? 1 : 0, 0, 1) != 0;
        } else if (option == QuoitChannelOption.DATAGRAM_SLOTS) {
            slots = early(option, (Integer) value, 1, MAX_SLOTS);
        } else if (option == QuoitChannelOption.PENDING_WRITE_LIMIT) {
            pendingWriteLimit = PendingWritesException.limit((Long) value);
        } else {
            return super.setOption(option, value);
        }
        return true;
    }

    /** A value that is needed when the socket is given to its loop. */
    private int early(ChannelOption<?> option, int value, int least, int most) {
        if (channel.isActive()) {
            throw new IllegalStateException(option.name() + " must be set before the channel is bound or connected");
        }
        if (value < least || value > most) {
            throw new IllegalArgumentException(option.name() + ": " + value + " (expected: " + least + " to " + most + ")");
        }
        return value;
    }

    @Override
    @Deprecated
    public QuoitDatagramChannelConfig setMaxMessagesPerRead(int messages) {
        super.setMaxMessagesPerRead(messages);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setWriteSpinCount(int count) {
        super.setWriteSpinCount(count);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setConnectTimeoutMillis(int millis) {
        super.setConnectTimeoutMillis(millis);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setAllocator(ByteBufAllocator allocator) {
        super.setAllocator(allocator);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setAutoRead(boolean autoRead) {
        super.setAutoRead(autoRead);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setAutoClose(boolean autoClose) {
        super.setAutoClose(autoClose);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setMessageSizeEstimator(MessageSizeEstimator estimator) {
        super.setMessageSizeEstimator(estimator);
        return this;
    }

    @Override
    public QuoitDatagramChannelConfig setWriteBufferWaterMark(WriteBufferWaterMark mark) {
        super.setWriteBufferWaterMark(mark);
        return this;
    }
}
