package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.concurrent.TimeUnit;

/** A TCP connection on Quoit, for event loops of {@link QuoitIoHandler}. */
public final class QuoitSocketChannel extends AbstractQuoitStreamChannel implements SocketChannel {
    private static final long NO_TIMEOUT_NANOS = TimeUnit.DAYS.toNanos(365);

    private final QuoitSocketChannelConfig config;

    /** A channel that is to be connected. */
    public QuoitSocketChannel() {
        config = new QuoitSocketChannelConfig(this);
    }

    QuoitSocketChannel(Channel parent, int accepted, InetSocketAddress localAddress) {
        super(parent, accepted, localAddress, Descriptors.remoteAddress(accepted));
        config = new QuoitSocketChannelConfig(this);
        config.setTcpNoDelay(true);
    }

    @Override
    public QuoitSocketChannelConfig config() {
        return config;
    }

    @Override
    public ServerSocketChannel parent() {
        return (ServerSocketChannel) super.parent();
    }

    @Override
    public InetSocketAddress localAddress() {
        return (InetSocketAddress) super.localAddress();
    }

    @Override
    public InetSocketAddress remoteAddress() {
        return (InetSocketAddress) super.remoteAddress();
    }

    /**
     * What the kernel tells of the connection. May be called by any thread.
     *
     * @return its state now
     * @throws ChannelException if it is not open, or the kernel refuses
     */
    public QuoitTcpInfo tcpInfo() {
        try {
            return QuoitTcpInfo.read(Descriptors.read(
                    descriptor(), Descriptors.IPPROTO_TCP, Descriptors.TCP_INFO, QuoitTcpInfo.BYTES));
        } catch (IOException refusal) {
            throw new ChannelException(refusal);
        }
    }

    @Override
    Connecting connecting(SocketAddress remoteAddress, SocketAddress localAddress) {
        // The socket is of the peer's family; that of Netty's own transports is of both.
        SocketAddress own = localAddress instanceof InetSocketAddress inet
                ? Addresses.of(Addresses.family(remoteAddress), inet)
                : localAddress;
        return new Connecting(
                remoteAddress,
                own,
                connectTimeoutNanos(config),
                config.give(KernelOption.NO_DELAY, 1) != 0,
                config.give(KernelOption.RECEIVE_BUFFER, 0),
                config.give(KernelOption.SEND_BUFFER, 0));
    }

    static long connectTimeoutNanos(io.netty.channel.ChannelConfig config) {
        int millis = config.getConnectTimeoutMillis();
        return millis == 0 ? NO_TIMEOUT_NANOS : TimeUnit.MILLISECONDS.toNanos(millis);
    }

    @Override
    boolean fits(SocketAddress address) {
        return address instanceof InetSocketAddress;
    }
}
