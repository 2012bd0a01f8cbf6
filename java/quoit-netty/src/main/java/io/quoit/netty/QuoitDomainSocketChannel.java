package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.DomainSocketChannel;
import io.netty.channel.unix.FileDescriptor;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;

/** A connection of a Unix stream socket on Quoit, for event loops of {@link QuoitIoHandler}. */
public final class QuoitDomainSocketChannel extends AbstractQuoitStreamChannel implements DomainSocketChannel {
    private final QuoitDomainSocketChannelConfig config = new QuoitDomainSocketChannelConfig(this);

    /** A channel that is to be connected. */
    public QuoitDomainSocketChannel() {}

    QuoitDomainSocketChannel(Channel parent, int accepted) {
        super(parent, accepted, Descriptors.localAddress(accepted), Descriptors.remoteAddress(accepted));
    }

    @Override
    public QuoitDomainSocketChannelConfig config() {
        return config;
    }

    @Override
    public DomainSocketAddress localAddress() {
        return (DomainSocketAddress) super.localAddress();
    }

    @Override
    public DomainSocketAddress remoteAddress() {
        return (DomainSocketAddress) super.remoteAddress();
    }

    /**
     * The socket's number. Do not close it: it is the loop's.
     *
     * @return the descriptor
     * @throws IllegalStateException while there is none
     */
    @Override
    public FileDescriptor fd() {
        return LoopsDescriptor.of(descriptor());
    }

    /**
     * Who is at the other end. May be called by any thread.
     *
     * @return the process and its user and group, as they were when the connection was made
     * @throws IOException if the channel is not open, or the kernel refuses
     */
    public QuoitPeerCredentials peerCredentials() throws IOException {
        ByteBuffer found =
                Descriptors.read(descriptor(), Descriptors.SOL_SOCKET, Descriptors.SO_PEERCRED, 3 * Integer.BYTES);
        return new QuoitPeerCredentials(found.getInt(0), found.getInt(4), found.getInt(8));
    }

    @Override
    Connecting connecting(SocketAddress remoteAddress, SocketAddress localAddress) {
        return new Connecting(
                remoteAddress,
                localAddress,
                QuoitSocketChannel.connectTimeoutNanos(config),
                false,
                config.give(KernelOption.RECEIVE_BUFFER, 0),
                config.give(KernelOption.SEND_BUFFER, 0));
    }

    @Override
    boolean fits(SocketAddress address) {
        return Addresses.isUnix(address);
    }
}
