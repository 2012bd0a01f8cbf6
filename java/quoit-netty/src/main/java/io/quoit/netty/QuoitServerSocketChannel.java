package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.socket.ServerSocketChannel;
import java.io.IOException;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.channels.UnsupportedAddressTypeException;

/** A listening TCP socket on Quoit, for event loops of {@link QuoitIoHandler}. */
public final class QuoitServerSocketChannel extends AbstractQuoitServerChannel implements ServerSocketChannel {
    private final QuoitServerSocketChannelConfig config = new QuoitServerSocketChannelConfig(this, false);
    /** The local address of the connection that was accepted last. */
    private InetSocketAddress lastLocal;

    /** A channel that is to be bound. */
    public QuoitServerSocketChannel() {}

    /**
     * A channel of a socket that listens already, such as one that was inherited: register it, and do not bind it. Another
     * process may have the socket as well; both accept from it then.
     *
     * @param descriptor the socket's number; it is the channel's from now on, also if this fails
     * @throws io.netty.channel.ChannelException if it is no listening socket
     */
    public QuoitServerSocketChannel(int descriptor) {
        super(descriptor);
    }

    @Override
    public QuoitServerSocketChannelConfig config() {
        return config;
    }

    @Override
    public InetSocketAddress localAddress() {
        return (InetSocketAddress) super.localAddress();
    }

    @Override
    public InetSocketAddress remoteAddress() {
        return null;
    }

    @Override
    int bindSocket(SocketAddress address) throws IOException {
        if (!(address instanceof InetSocketAddress inet)) {
            throw new UnsupportedAddressTypeException();
        }
        if (inet.getAddress().isAnyLocalAddress() && !io.netty.util.NetUtil.isIpV4StackPreferred()) {
            // As Java does: the wildcard means both families, where the machine has both.
            try {
                InetAddress any = Inet6Address.getByAddress(null, new byte[16], -1);
                return bound(Descriptors.stream(Addresses.AF_INET6), new InetSocketAddress(any, inet.getPort()));
            } catch (java.net.SocketException noIpv6) {
                if (noIpv6 instanceof java.net.BindException) {
                    throw noIpv6;
                }
            }
        }
        return bound(Descriptors.stream(Addresses.family(inet)), inet);
    }

    private int bound(int descriptor, InetSocketAddress address) throws IOException {
        try {
            config.applyFirst(descriptor);
            Descriptors.bind(descriptor, address);
            return descriptor;
        } catch (IOException | RuntimeException failure) {
            Descriptors.close(descriptor);
            throw failure;
        }
    }

    @Override
    int backlog() {
        return config.getBacklog();
    }

    @Override
    Channel child(int accepted) {
        InetSocketAddress own = (InetSocketAddress) Descriptors.localAddress(accepted);
        // Most connections have the same one, and share it. Two that differ in their scope alone are equal to Java.
        if (own == null || !own.equals(lastLocal) || own.getAddress().isLinkLocalAddress()) {
            lastLocal = own;
        }
        return new QuoitSocketChannel(this, accepted, lastLocal);
    }
}
