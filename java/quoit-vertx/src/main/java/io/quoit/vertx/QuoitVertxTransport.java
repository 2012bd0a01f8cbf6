package io.quoit.vertx;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFactory;
import io.netty.channel.ChannelOption;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.ServerChannel;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.InternetProtocolFamily;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitChannelOption;
import io.quoit.netty.QuoitDatagramChannel;
import io.quoit.netty.QuoitDomainSocketChannel;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitServerDomainSocketChannel;
import io.quoit.netty.QuoitServerSocketChannel;
import io.quoit.netty.QuoitSocketChannel;
import io.vertx.core.datagram.DatagramSocketOptions;
import io.vertx.core.net.ClientOptionsBase;
import io.vertx.core.net.NetServerOptions;
import io.vertx.core.net.SocketAddress;
import io.vertx.core.transport.Transport;
import java.net.NetworkInterface;
import java.net.SocketException;

/**
 * Quoit as Vert.x's transport: {@code Vertx.builder().withTransport(new QuoitVertxTransport()).build()}. Where Quoit cannot be
 * used Vert.x runs on NIO; the cause is logged, and is {@code vertx.unavailableNativeTransportCause()}.
 */
public final class QuoitVertxTransport implements Transport {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(QuoitVertxTransport.class);

    /** Connections that wait for the rest of their handshake: Vert.x's own number. */
    private static final int FAST_OPEN_QUEUE = 256;

    private final Implementation implementation;

    /** The transport with {@link QuoitIoHandlerConfig#defaults()}. */
    public QuoitVertxTransport() {
        this(QuoitIoHandlerConfig.defaults());
    }

    /**
     * The transport with these settings.
     *
     * @param config the settings of every event loop
     */
    public QuoitVertxTransport(QuoitIoHandlerConfig config) {
        implementation = new Implementation(config);
        // Vert.x takes another one without a word.
        Throwable cause = Quoit.unavailabilityCause();
        if (cause != null) {
            LOGGER.warn("Quoit's transport is not available, Vert.x uses NIO instead: {}", cause.getMessage());
        }
    }

    @Override
    public String name() {
        return "quoit";
    }

    @Override
    public boolean available() {
        return Quoit.isAvailable();
    }

    @Override
    public Throwable unavailabilityCause() {
        return Quoit.unavailabilityCause();
    }

    @Override
    public io.vertx.core.spi.transport.Transport implementation() {
        return implementation;
    }

    private record Implementation(QuoitIoHandlerConfig config) implements io.vertx.core.spi.transport.Transport {
        @Override
        public boolean supportsDomainSockets() {
            return true;
        }

        @Override
        public boolean isAvailable() {
            return Quoit.isAvailable();
        }

        @Override
        public Throwable unavailabilityCause() {
            return Quoit.unavailabilityCause();
        }

        @Override
        public java.net.SocketAddress convert(SocketAddress address) {
            return address.isDomainSocket()
                    ? new DomainSocketAddress(address.path())
                    : io.vertx.core.spi.transport.Transport.super.convert(address);
        }

        @Override
        public SocketAddress convert(java.net.SocketAddress address) {
            return address instanceof DomainSocketAddress unix
                    ? SocketAddress.domainSocketAddress(unix.path())
                    : io.vertx.core.spi.transport.Transport.super.convert(address);
        }

        @Override
        public IoHandlerFactory ioHandlerFactory() {
            return QuoitIoHandler.newFactory(config);
        }

        @Override
        public DatagramChannel datagramChannel() {
            return new QuoitDatagramChannel();
        }

        @Override
        @SuppressWarnings("deprecation")
        public DatagramChannel datagramChannel(InternetProtocolFamily family) {
            return new QuoitDatagramChannel(
                    family == InternetProtocolFamily.IPv6 ? SocketProtocolFamily.INET6 : SocketProtocolFamily.INET);
        }

        // What Vert.x leaves to its native transports. Sockets have each of these off by themselves.

        @Override
        public void configure(DatagramChannel channel, DatagramSocketOptions options) {
            if (options.isReusePort()) {
                channel.config().setOption(QuoitChannelOption.SO_REUSEPORT, true);
            }
            io.vertx.core.spi.transport.Transport.super.configure(channel, options);
            // Vert.x itself sets these on its transport of NIO alone.
            if (options.getMulticastTimeToLive() != -1) {
                channel.config().setTimeToLive(options.getMulticastTimeToLive());
            }
            if (options.getMulticastNetworkInterface() != null) {
                channel.config().setNetworkInterface(networkInterface(options.getMulticastNetworkInterface()));
            }
        }

        private static NetworkInterface networkInterface(String name) {
            NetworkInterface found;
            try {
                found = NetworkInterface.getByName(name);
            } catch (SocketException failure) {
                throw new IllegalArgumentException("the network interface " + name + " cannot be found", failure);
            }
            if (found == null) {
                throw new IllegalArgumentException("there is no network interface " + name);
            }
            return found;
        }

        @Override
        public void configure(NetServerOptions options, boolean domainSocket, ServerBootstrap bootstrap) {
            if (!domainSocket) {
                if (options.isReusePort()) {
                    bootstrap.option(QuoitChannelOption.SO_REUSEPORT, true);
                }
                if (options.isTcpFastOpen()) {
                    bootstrap.option(ChannelOption.TCP_FASTOPEN, FAST_OPEN_QUEUE);
                }
                if (options.isTcpQuickAck()) {
                    bootstrap.childOption(QuoitChannelOption.TCP_QUICKACK, true);
                }
                if (options.isTcpCork()) {
                    bootstrap.childOption(QuoitChannelOption.TCP_CORK, true);
                }
            }
            io.vertx.core.spi.transport.Transport.super.configure(options, domainSocket, bootstrap);
        }

        @Override
        public void configure(ClientOptionsBase options, int connectTimeout, boolean domainSocket, Bootstrap bootstrap) {
            if (!domainSocket) {
                if (options.isTcpFastOpen()) {
                    // Not there: Netty logs that.
                    bootstrap.option(ChannelOption.TCP_FASTOPEN_CONNECT, true);
                }
                if (options.getTcpUserTimeout() > 0) {
                    bootstrap.option(QuoitChannelOption.TCP_USER_TIMEOUT, options.getTcpUserTimeout());
                }
                if (options.isTcpQuickAck()) {
                    bootstrap.option(QuoitChannelOption.TCP_QUICKACK, true);
                }
                if (options.isTcpCork()) {
                    bootstrap.option(QuoitChannelOption.TCP_CORK, true);
                }
            }
            io.vertx.core.spi.transport.Transport.super.configure(options, connectTimeout, domainSocket, bootstrap);
        }

        @Override
        public ChannelFactory<? extends Channel> channelFactory(boolean domainSocket) {
            return domainSocket ? QuoitDomainSocketChannel::new : QuoitSocketChannel::new;
        }

        @Override
        public ChannelFactory<? extends ServerChannel> serverChannelFactory(boolean domainSocket) {
            return domainSocket ? QuoitServerDomainSocketChannel::new : QuoitServerSocketChannel::new;
        }
    }
}
