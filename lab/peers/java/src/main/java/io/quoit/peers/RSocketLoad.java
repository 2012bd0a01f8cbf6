package io.quoit.peers;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;

/**
 * RSocket's frames on raw Netty, both ends: how a client and a server of one case do on a transport. The server prints a
 * line of JSON for each window that a client tells it of, the client one for its own.
 */
final class RSocketLoad implements AutoCloseable {
    /** Words to the server, by pushed metadata. */
    private static final int WINDOW_BEGINS = 1;

    private static final int WINDOW_ENDS = 2;

    private static final int BACKLOG = 4096;

    private final EventLoopGroup group;
    private final LongAdder messages = new LongAdder();
    private final List<Channel> channels = new ArrayList<>();
    private final List<RSocketRequester> requesters = new ArrayList<>();

    private RSocketLoad(Transport transport, int loops) {
        group = new MultiThreadIoEventLoopGroup(loops, new DefaultThreadFactory("rsocket"), transport.loops());
    }

    /**
     * Serves.
     *
     * @param reports gets the figures of each window, as a line of JSON
     */
    static RSocketLoad serve(Transport transport, int loops, SocketAddress address, Consumer<String> reports)
            throws InterruptedException {
        RSocketLoad server = new RSocketLoad(transport, loops);
        Window window = new Window(server.messages, transport, reports);
        Channel listening = new ServerBootstrap()
                .group(server.group)
                .channel(transport.serverChannel)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.ALLOCATOR, PooledByteBufAllocator.DEFAULT)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        transport.prepare(channel.config());
                        channel.pipeline().addLast(new RSocketResponder(server.messages, window::word));
                    }
                })
                .bind(address)
                .sync()
                .channel();
        server.channels.add(listening);
        return server;
    }

    InetSocketAddress address() {
        return (InetSocketAddress) channels.get(0).localAddress();
    }

    /** A server's windows, as its clients tell of them. */
    private static final class Window {
        private final LongAdder messages;
        private final Transport transport;
        private final Consumer<String> reports;
        private RSocketFigures figures;

        Window(LongAdder messages, Transport transport, Consumer<String> reports) {
            this.messages = messages;
            this.transport = transport;
            this.reports = reports;
        }

        synchronized void word(int word) {
            if (word == WINDOW_BEGINS) {
                figures = new RSocketFigures(messages);
            } else if (word == WINDOW_ENDS && figures != null) {
                RSocketFigures ended = figures;
                figures = null;
                // Not on the event loop, which it would hold up.
                Thread.ofPlatform().start(() -> {
                    try {
                        reports.accept(line("server", transport, ended.end()));
                    } catch (InterruptedException stopped) {
                        Thread.currentThread().interrupt();
                    }
                });
            }
        }
    }

    private static String line(String role, Transport transport, String figures) {
        return "{\"role\":\"" + role + "\",\"engine\":\"netty-" + transport.word + "\"," + figures + "}";
    }

    /** Opens the connections of a case, and their streams. */
    static RSocketLoad connect(Transport transport, int loops, SocketAddress address, RSocketCase load)
            throws InterruptedException {
        RSocketLoad client = new RSocketLoad(transport, loops);
        Bootstrap bootstrap = new Bootstrap()
                .group(client.group)
                .channel(transport.channel)
                .option(ChannelOption.TCP_NODELAY, true)
                .option(ChannelOption.ALLOCATOR, PooledByteBufAllocator.DEFAULT);
        try {
            for (int connection = 0; connection < load.connections(); connection++) {
                RSocketRequester requester = new RSocketRequester(client.messages, load);
                client.requesters.add(requester);
                client.channels.add(bootstrap
                        .clone()
                        .handler(new ChannelInitializer<>() {
                            @Override
                            protected void initChannel(Channel channel) {
                                transport.prepare(channel.config());
                                channel.pipeline().addLast(requester);
                            }
                        })
                        .connect(address)
                        .sync()
                        .channel());
            }
        } catch (Throwable failure) {
            client.close();
            throw failure;
        }
        return client;
    }

    long messages() {
        return messages.sum();
    }

    /** Throws what one of the connections has failed with. */
    void check() {
        for (int connection = 0; connection < requesters.size(); connection++) {
            Throwable failure = requesters.get(connection).failure();
            if (failure != null) {
                throw new IllegalStateException("a connection has failed", failure);
            }
        }
    }

    /**
     * Runs the case for a window, and answers its figures as a line of JSON.
     *
     * @param warmUp seconds that the virtual machine may take to become warm
     */
    String run(Transport transport, int warmUp, double seconds) throws InterruptedException {
        long warm = RSocketFigures.warmUp(warmUp);
        tell(WINDOW_BEGINS);
        RSocketFigures figures = new RSocketFigures(messages);
        Thread.sleep((long) (seconds * 1_000));
        String report = figures.end();
        tell(WINDOW_ENDS);
        check();
        return line("client", transport, "\"warm_up_seconds\":" + (warm < 0 ? warmUp : warm) + "," + report);
    }

    private void tell(int word) throws InterruptedException {
        var context = channels.get(0).pipeline().firstContext();
        context.executor()
                .submit(() -> context.writeAndFlush(RSocketRequester.word(context, word)))
                .sync();
    }

    @Override
    public void close() {
        group.shutdownGracefully(0, 5, TimeUnit.SECONDS).syncUninterruptibly();
    }

    // ---- the program ----

    /** {@code netty rsocket-load --connect HOST:PORT [--case NAME] [--engine E] [--seconds S] [--warm-up S] ...}. */
    static int main(List<String> words, Consumer<String> out, Consumer<String> complaints) {
        Transport transport = Transport.QUOIT_URING;
        RSocketCase load = RSocketCase.of("rpc-backend");
        InetSocketAddress address = null;
        int loops = 1;
        int warmUp = 60;
        double seconds = 10;
        try {
            if (words.size() % 2 != 0) {
                throw new IllegalArgumentException("an option lacks its value");
            }
            for (int at = 0; at < words.size(); at += 2) {
                String value = words.get(at + 1);
                switch (words.get(at)) {
                    case "--engine" -> transport = known(Transport.of(value), value);
                    case "--case" -> load = known(RSocketCase.of(value), value);
                    case "--connect" -> address = NettyPeer.hostAndPort(value);
                    case "--loops" -> loops = Integer.parseInt(value);
                    case "--seconds" -> seconds = Double.parseDouble(value);
                    case "--warm-up" -> warmUp = Integer.parseInt(value);
                    default -> load = known(load.with(words.get(at), Integer.parseInt(value)), words.get(at));
                }
            }
            known(address, "--connect is missing");
        } catch (IllegalArgumentException wrong) {
            complaints.accept("netty rsocket-load: " + wrong.getMessage());
            return 2;
        }
        try (RSocketLoad client = connect(transport, loops, address, load)) {
            out.accept(client.run(transport, warmUp, seconds));
            return 0;
        } catch (Exception failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            complaints.accept("netty rsocket-load: " + failure.getMessage() + ": " + cause);
            return 1;
        }
    }

    private static <T> T known(T value, String word) {
        if (value == null) {
            throw new IllegalArgumentException("'" + word + "' names nothing that is known");
        }
        return value;
    }
}
