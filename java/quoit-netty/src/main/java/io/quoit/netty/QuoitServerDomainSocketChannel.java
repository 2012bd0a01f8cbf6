package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.FileDescriptor;
import io.netty.channel.unix.ServerDomainSocketChannel;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.channels.UnsupportedAddressTypeException;

/**
 * A listening Unix stream socket on Quoit, for event loops of {@link QuoitIoHandler}. Its file is removed when the channel
 * is closed.
 */
public final class QuoitServerDomainSocketChannel extends AbstractQuoitServerChannel
        implements ServerDomainSocketChannel {
    private final QuoitServerSocketChannelConfig config = new QuoitServerSocketChannelConfig(this, true);
    private DomainSocketAddress bound;

    /** A channel that is to be bound. */
    public QuoitServerDomainSocketChannel() {}

    /**
     * A channel of a socket that listens already, such as one that was inherited: register it, and do not bind it. Another
     * process may have the socket as well; both accept from it then. Its file stays when the channel is closed.
     *
     * @param descriptor the socket's number; it is the channel's from now on, also if this fails
     * @throws io.netty.channel.ChannelException if it is no listening socket
     */
    public QuoitServerDomainSocketChannel(int descriptor) {
        super(descriptor);
    }

    @Override
    public QuoitServerSocketChannelConfig config() {
        return config;
    }

    @Override
    public DomainSocketAddress localAddress() {
        return (DomainSocketAddress) super.localAddress();
    }

    @Override
    public DomainSocketAddress remoteAddress() {
        return null;
    }

    /**
     * The socket's number. Do not close it: it is the channel's.
     *
     * @return the descriptor
     * @throws IllegalStateException while there is none
     */
    @Override
    public FileDescriptor fd() {
        return LoopsDescriptor.of(descriptor());
    }

    @Override
    int bindSocket(SocketAddress address) throws IOException {
        if (!Addresses.isUnix(address)) {
            throw new UnsupportedAddressTypeException();
        }
        int descriptor = Descriptors.stream(Addresses.AF_UNIX);
        try {
            config.applyFirst(descriptor);
            SocketFiles.bind(descriptor, address);
            bound = (DomainSocketAddress) Descriptors.localAddress(descriptor);
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
        return new QuoitDomainSocketChannel(this, accepted);
    }

    @Override
    protected void doClose() throws Exception {
        super.doClose();
        DomainSocketAddress removed = bound;
        bound = null;
        if (removed != null) {
            SocketFiles.remove(removed);
        }
    }
}
