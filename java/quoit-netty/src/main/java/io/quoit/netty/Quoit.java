package io.quoit.netty;

import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioDatagramChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.util.List;

/**
 * Quoit's transport for Netty: whether it can be used here, why not, and what a bootstrap needs of it.
 *
 * <pre>{@code
 * QuoitTransport transport = Quoit.transport();
 * EventLoopGroup group = new MultiThreadIoEventLoopGroup(transport.ioHandlerFactory());
 * ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE); // the child handler adds each channel
 * Channel server = new ServerBootstrap().group(group).channel(transport.serverSocketChannel()).childHandler(...)
 *         .bind(8080).sync().channel();
 * Runtime.getRuntime().addShutdownHook(new Thread(() -> { // SIGTERM: nobody new, then who is there may finish
 *     server.close().syncUninterruptibly();
 *     connections.newCloseFuture().awaitUninterruptibly(10, TimeUnit.SECONDS);
 *     group.shutdownGracefully(0, 5, TimeUnit.SECONDS).syncUninterruptibly();
 * }));
 * }</pre>
 */
public final class Quoit {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(Quoit.class);

    private Quoit() {}

    /**
     * Whether the transport can be used here: the library is there, and is the right one. It then runs on io_uring, or
     * where that is denied on epoll.
     *
     * @return whether {@link QuoitIoHandler#newFactory()} returns a factory
     */
    public static boolean isAvailable() {
        return unavailabilityCause() == null;
    }

    /**
     * Why the transport cannot be used here.
     *
     * @return the cause, whose message says what to do; null if it can be used
     */
    public static Throwable unavailabilityCause() {
        return NativeLoader.outcome().cause();
    }

    /**
     * Does nothing if the transport can be used here.
     *
     * @throws UnsupportedOperationException otherwise, with the reason and the remedy
     */
    public static void ensureAvailability() {
        NativeLoader.library();
    }

    /**
     * The transport with {@link QuoitIoHandlerConfig#defaults()}, or Netty's own NIO where Quoit cannot be used; the cause
     * is logged then.
     *
     * @return what a bootstrap needs
     */
    public static QuoitTransport transport() {
        return transport(QuoitIoHandlerConfig.defaults());
    }

    /**
     * The transport with these settings, or Netty's own NIO where Quoit cannot be used; the cause is logged then. Use
     * {@link #ensureAvailability()} first to fail instead.
     *
     * @param config the settings
     * @return what a bootstrap needs
     */
    public static QuoitTransport transport(QuoitIoHandlerConfig config) {
        Throwable cause = unavailabilityCause();
        if (cause != null) {
            LOGGER.warn("Quoit's transport is not available, NIO is used instead: {}", cause.getMessage());
            return new QuoitTransport(
                    "nio",
                    NioIoHandler.newFactory(),
                    NioSocketChannel.class,
                    NioServerSocketChannel.class,
                    NioDatagramChannel.class);
        }
        return new QuoitTransport(
                "quoit",
                QuoitIoHandler.newFactory(config),
                QuoitSocketChannel.class,
                QuoitServerSocketChannel.class,
                QuoitDatagramChannel.class);
    }

    /**
     * The figures of all loops that run in this process. Any thread may ask, which costs the loops nothing. While a loop
     * runs two of its figures may be of moments a little apart.
     *
     * @return a snapshot a loop
     */
    public static List<QuoitLoopSnapshot> loops() {
        return Metrics.snapshots();
    }

    /**
     * Finds out what can be used here, and why not more. It makes a ring, which takes milliseconds.
     *
     * @return a report that prints well
     */
    public static QuoitReport doctor() {
        return Doctor.report();
    }
}
