package io.quoit.reactor;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.unix.DomainSocketChannel;
import io.netty.channel.unix.ServerDomainSocketChannel;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.FastThreadLocalThread;
import io.quoit.netty.QuoitDatagramChannel;
import io.quoit.netty.QuoitDomainSocketChannel;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitServerDomainSocketChannel;
import io.quoit.netty.QuoitServerSocketChannel;
import io.quoit.netty.QuoitSocketChannel;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.NonBlocking;
import reactor.netty.resources.LoopResources;

/**
 * Quoit's event loops for Reactor Netty: {@code HttpServer.create().runOn(QuoitLoopResources.create("http", 2, true))}.
 * Servers and clients share one group; a client that is used on a loop stays on it.
 */
public final class QuoitLoopResources implements LoopResources {
    private final EventLoopGroup group;
    private final EventLoopGroup colocated;
    private final boolean daemon;

    private QuoitLoopResources(EventLoopGroup group, boolean daemon) {
        this.group = group;
        this.colocated = LoopResources.colocate(group);
        this.daemon = daemon;
    }

    /**
     * Event loops with {@link QuoitIoHandlerConfig#defaults()}.
     *
     * @param prefix of the threads' names
     * @param loops how many, at least 1
     * @param daemon whether their threads let the virtual machine end
     * @return the loops
     * @throws UnsupportedOperationException if Quoit cannot be used here, with the reason and the remedy
     */
    public static QuoitLoopResources create(String prefix, int loops, boolean daemon) {
        return create(prefix, loops, daemon, QuoitIoHandlerConfig.defaults());
    }

    /**
     * Event loops with these settings.
     *
     * @param prefix of the threads' names
     * @param loops how many, at least 1
     * @param daemon whether their threads let the virtual machine end
     * @param config the settings
     * @return the loops
     * @throws UnsupportedOperationException if Quoit cannot be used here, with the reason and the remedy
     */
    public static QuoitLoopResources create(String prefix, int loops, boolean daemon, QuoitIoHandlerConfig config) {
        return new QuoitLoopResources(
                new MultiThreadIoEventLoopGroup(
                        loops, new LoopThreads(prefix, daemon), QuoitIoHandler.newFactory(config)),
                daemon);
    }

    /** Threads that Reactor knows for ones that must not block: a {@code block()} there fails, where it would stop the loop. */
    private static final class LoopThreads extends DefaultThreadFactory {
        LoopThreads(String prefix, boolean daemon) {
            super(prefix, daemon);
        }

        @Override
        protected Thread newThread(Runnable task, String name) {
            return new LoopThread(threadGroup, task, name);
        }
    }

    private static final class LoopThread extends FastThreadLocalThread implements NonBlocking {
        LoopThread(ThreadGroup group, Runnable task, String name) {
            super(group, task, name);
        }
    }

    @Override
    public EventLoopGroup onServer(boolean useNative) {
        return group;
    }

    @Override
    public EventLoopGroup onServerSelect(boolean useNative) {
        return group;
    }

    @Override
    public EventLoopGroup onClient(boolean useNative) {
        return colocated;
    }

    @Override
    public boolean daemon() {
        return daemon;
    }

    @Override
    public <C extends Channel> C onChannel(Class<C> type, EventLoopGroup loops) {
        Channel channel;
        if (type == SocketChannel.class) {
            channel = new QuoitSocketChannel();
        } else if (type == ServerSocketChannel.class) {
            channel = new QuoitServerSocketChannel();
        } else if (type == DomainSocketChannel.class) {
            channel = new QuoitDomainSocketChannel();
        } else if (type == ServerDomainSocketChannel.class) {
            channel = new QuoitServerDomainSocketChannel();
        } else if (type == DatagramChannel.class) {
            channel = new QuoitDatagramChannel();
        } else {
            throw unsupported(type);
        }
        return type.cast(channel);
    }

    @Override
    public <C extends Channel> Class<? extends C> onChannelClass(Class<C> type, EventLoopGroup loops) {
        Class<? extends Channel> channel;
        if (type == SocketChannel.class) {
            channel = QuoitSocketChannel.class;
        } else if (type == ServerSocketChannel.class) {
            channel = QuoitServerSocketChannel.class;
        } else if (type == DomainSocketChannel.class) {
            channel = QuoitDomainSocketChannel.class;
        } else if (type == ServerDomainSocketChannel.class) {
            channel = QuoitServerDomainSocketChannel.class;
        } else if (type == DatagramChannel.class) {
            channel = QuoitDatagramChannel.class;
        } else {
            throw unsupported(type);
        }
        return channel.asSubclass(type);
    }

    private static UnsupportedOperationException unsupported(Class<?> type) {
        return new UnsupportedOperationException(
                "Quoit has no " + type.getName() + ": give such channels other loops, as Reactor Netty's own");
    }

    @Override
    public boolean isDisposed() {
        return group.isShuttingDown();
    }

    @Override
    public Mono<Void> disposeLater(Duration quietPeriod, Duration timeout) {
        return Mono.create(sink -> group.shutdownGracefully(
                        quietPeriod.toMillis(), timeout.toMillis(), TimeUnit.MILLISECONDS)
                .addListener(future -> {
                    if (future.isSuccess()) {
                        sink.success();
                    } else {
                        sink.error(future.cause());
                    }
                }));
    }
}
