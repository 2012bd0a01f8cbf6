package io.quoit.peers;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/**
 * RSocket's frames on raw Netty, both ends: how a client and a server of one case do on a transport. The server prints a
 * line of JSON for each window that a client tells it of, the client one for its own.
 */
final class RSocketLoad implements AutoCloseable {
    /** Words to the server, by pushed metadata; it answers the second with its figures, a name and a number a line. */
    private static final byte WINDOW_BEGINS = 1;

    private static final byte WINDOW_ENDS = 2;

    /** Collects garbage, so that the heap's peak is what a window makes of it. */
    private static final byte COLLECT = 3;

    /** Between saying that a window will open and its opening, so that whoever watches is there. */
    private static final long NOTICE_NANOS = 200_000_000;

    private static final int ANSWER_SECONDS = 20;

    /** The part of a warm-up that may be in a hurry; the measured connections have the rest for themselves. */
    private static final double HURRIED_PART = 0.5;

    private static final int MOST_SECONDS = 86_400;
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

        synchronized void word(ChannelHandlerContext context, byte word) {
            if (word == COLLECT) {
                Thread.ofPlatform().start(System::gc);
            } else if (word == WINDOW_BEGINS) {
                figures = new RSocketFigures(messages);
            } else if (word == WINDOW_ENDS && figures != null) {
                RSocketFigures ended = figures;
                figures = null;
                // Not on the event loop, which it would hold up.
                Thread.ofPlatform().start(() -> {
                    try {
                        RSocketFigures.Window window = ended.end();
                        reports.accept(line("server", transport, window.json()));
                        byte[] told = lines(window).getBytes(StandardCharsets.US_ASCII);
                        context.executor()
                                .execute(() -> context.writeAndFlush(RSocketConnection.pushed(context, told)));
                    } catch (InterruptedException stopped) {
                        Thread.currentThread().interrupt();
                    }
                });
            }
        }

        private static String lines(RSocketFigures.Window window) {
            return window.others().entrySet().stream()
                    .map(figure -> figure.getKey() + " " + figure.getValue() + "\n")
                    .collect(Collectors.joining());
        }

        private static Map<String, Number> figures(String lines) {
            Map<String, Number> figures = new LinkedHashMap<>();
            lines.lines().map(line -> line.split(" ")).forEach(pair -> figures.put(pair[0], new BigDecimal(pair[1])));
            return figures;
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
     * Runs the case for a window, and answers both ends' figures as a line of JSON, in which the lab finds what it wants of a
     * client under test.
     *
     * @param warmed seconds that the warm-up took, for the figures
     * @param settle seconds before the window, in which the connections come into their pace
     * @param announcements get {@code window opens_ns=T lasts_ns=D in_ns=N} shortly before the window opens, T by
     *     CLOCK_MONOTONIC
     */
    String run(
            Transport transport, double warmed, double settle, double seconds, Consumer<String> announcements)
            throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep((long) (settle * 1e9));
        check();
        tell(COLLECT);
        System.gc();
        // HotSpot's clock is CLOCK_MONOTONIC.
        long opens = System.nanoTime() + NOTICE_NANOS;
        long lasts = (long) (seconds * 1e9);
        announcements.accept("window opens_ns=" + opens + " lasts_ns=" + lasts + " in_ns=" + NOTICE_NANOS);
        TimeUnit.NANOSECONDS.sleep(opens - System.nanoTime());
        tell(WINDOW_BEGINS);
        RSocketFigures figures = new RSocketFigures(messages);
        TimeUnit.NANOSECONDS.sleep(opens + lasts - System.nanoTime());
        RSocketFigures.Window window = figures.end();
        tell(WINDOW_ENDS);
        String told = requesters.get(0).told().poll(ANSWER_SECONDS, TimeUnit.SECONDS);
        check();
        if (told == null) {
            throw new IllegalStateException("the server has not told its figures");
        }
        return line("client", transport, json(window, Window.figures(told), warmed));
    }

    /**
     * Runs a case in a hurry, on connections of its own, until this virtual machine has stopped compiling; the server's has
     * then compiled what serves them, too.
     *
     * @param most seconds that it may take
     * @return the seconds that it took
     */
    static double warmUp(Transport transport, int loops, SocketAddress address, RSocketCase load, double most)
            throws InterruptedException {
        try (RSocketLoad hurried = connect(transport, loops, address, load.hurried())) {
            double warmed = RSocketFigures.warmUp(most);
            hurried.check();
            return warmed;
        }
    }

    private static String json(RSocketFigures.Window window, Map<String, Number> server, double warmed) {
        StringBuilder intervals = new StringBuilder();
        for (int second = 0; second < window.eachSecond().size(); second++) {
            intervals.append(second == 0 ? "" : ",")
                    .append("{\"at_seconds\":" + (second + 1) + ",\"requests\":")
                    .append(window.eachSecond().get(second) + "}");
        }
        return "\"warm_up_seconds\":" + warmed + "," + window.json() + ",\"requests\":" + window.messages()
                + ",\"elapsed_seconds\":" + window.seconds() + ",\"intervals\":[" + intervals + "],\"told\":{"
                + RSocketFigures.Window.members("client_", window.others()) + ","
                + RSocketFigures.Window.members("server_", server) + "}";
    }

    private void tell(byte word) throws InterruptedException {
        var context = channels.get(0).pipeline().firstContext();
        context.executor()
                .submit(() -> context.writeAndFlush(RSocketConnection.pushed(context, new byte[] {word})))
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
        double warmUp = 60;
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
                    case "--seconds" -> seconds = seconds(value);
                    case "--warm-up" -> warmUp = seconds(value);
                    default -> load = known(load.with(words.get(at), Integer.parseInt(value)), words.get(at));
                }
            }
            known(address, "--connect is missing");
        } catch (IllegalArgumentException wrong) {
            complaints.accept("netty rsocket-load: " + wrong.getMessage());
            return 2;
        }
        try {
            double warmed = warmUp(transport, loops, address, load, HURRIED_PART * warmUp);
            // The change of pace makes the virtual machine compile once more.
            double settle = Math.max(0, warmUp - warmed);
            try (RSocketLoad client = connect(transport, loops, address, load)) {
                out.accept(client.run(transport, warmed, settle, seconds, complaints));
                return 0;
            }
        } catch (Exception failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            complaints.accept("netty rsocket-load: " + failure.getMessage() + ": " + cause);
            return 1;
        }
    }

    private static double seconds(String text) {
        double seconds = Double.parseDouble(text);
        if (!(seconds >= 0 && seconds <= MOST_SECONDS)) {
            throw new IllegalArgumentException("'" + text + "' is no number of seconds up to " + MOST_SECONDS);
        }
        return seconds;
    }

    private static <T> T known(T value, String word) {
        if (value == null) {
            throw new IllegalArgumentException("'" + word + "' names nothing that is known");
        }
        return value;
    }
}
