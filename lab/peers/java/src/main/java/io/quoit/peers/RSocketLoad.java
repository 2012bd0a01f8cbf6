package io.quoit.peers;

import com.sun.management.UnixOperatingSystemMXBean;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.SingleThreadEventExecutor;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
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

    /** Of a warm-up after the garbage was collected: the ends catch up on what was due meanwhile before the window opens. */
    private static final long REST_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final int ANSWER_SECONDS = 20;

    /** Connections that are being made at once: fewer than any listener's queue holds. */
    private static final int MOST_CONNECTING = 128;

    private static final int CONNECTING_SECONDS = 30;

    /** What a virtual machine has open beside its connections. */
    private static final int OTHER_DESCRIPTORS = 128;

    private static final int MOST_SECONDS = 86_400;
    private static final int BACKLOG = 4096;

    private final EventLoopGroup group;
    private final LongAdder messages = new LongAdder();
    private final List<Channel> channels = new ArrayList<>();
    private final List<RSocketRequester> requesters = new ArrayList<>();

    private RSocketLoad(IoHandlerFactory factory, int loops) {
        group = new MultiThreadIoEventLoopGroup(loops, new DefaultThreadFactory("rsocket"), factory);
    }

    /**
     * Serves.
     *
     * @param factory of the transport's loops
     * @param reports gets the figures of each window, as a line of JSON
     */
    static RSocketLoad serve(
            Transport transport,
            IoHandlerFactory factory,
            int loops,
            SocketAddress address,
            Consumer<String> reports)
            throws InterruptedException {
        RSocketLoad server = new RSocketLoad(factory, loops);
        Window window = new Window(server, transport, reports);
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
        private final RSocketLoad server;
        private final Transport transport;
        private final Consumer<String> reports;
        private RSocketFigures figures;

        Window(RSocketLoad server, Transport transport, Consumer<String> reports) {
            this.server = server;
            this.transport = transport;
            this.reports = reports;
        }

        synchronized void word(ChannelHandlerContext context, byte word) {
            if (word == COLLECT) {
                Thread.ofPlatform().start(System::gc);
            } else if (word == WINDOW_BEGINS) {
                figures = server.figures();
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

    /**
     * Opens the connections of a case; their messages follow within a period of its pace.
     *
     * @throws IOException a connection cannot be made, or all of them not in time, or the limit of descriptors is too low
     */
    static RSocketLoad connect(Transport transport, int loops, SocketAddress address, RSocketCase load)
            throws InterruptedException, IOException {
        RSocketLoad client = new RSocketLoad(transport.loops(), loops);
        try {
            client.open(transport, address, load);
        } catch (Throwable failure) {
            client.close();
            throw failure;
        }
        return client;
    }

    private void open(Transport transport, SocketAddress address, RSocketCase load)
            throws InterruptedException, IOException {
        checkDescriptors(load.connections());
        Bootstrap bootstrap = new Bootstrap()
                .group(group)
                .channel(transport.channel)
                .option(ChannelOption.TCP_NODELAY, true)
                // Reset at the end: connections in TIME_WAIT would use up the ports within a few runs.
                .option(ChannelOption.SO_LINGER, 0)
                .option(ChannelOption.ALLOCATOR, PooledByteBufAllocator.DEFAULT);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONNECTING_SECONDS);
        ArrayDeque<ChannelFuture> connecting = new ArrayDeque<>();
        for (int connection = 0; connection < load.connections(); connection++) {
            if (connecting.size() == MOST_CONNECTING) {
                keep(connecting.pollFirst(), end, load);
            }
            RSocketRequester requester = new RSocketRequester(messages, load, load.phaseNanos(connection));
            requesters.add(requester);
            connecting.addLast(bootstrap
                    .clone()
                    .handler(new ChannelInitializer<>() {
                        @Override
                        protected void initChannel(Channel channel) {
                            transport.prepare(channel.config());
                            channel.pipeline().addLast(requester);
                        }
                    })
                    .connect(address));
        }
        while (!connecting.isEmpty()) {
            keep(connecting.pollFirst(), end, load);
        }
    }

    /** Waits for a connection. */
    private void keep(ChannelFuture made, long end, RSocketCase load) throws InterruptedException, IOException {
        String which = "connection " + (channels.size() + 1) + " of " + load.connections();
        if (!made.await(end - System.nanoTime(), TimeUnit.NANOSECONDS)) {
            throw new IOException(which + " was not made within " + CONNECTING_SECONDS + " s");
        }
        if (!made.isSuccess()) {
            throw new IOException(which + " could not be made", made.cause());
        }
        channels.add(made.channel());
    }

    /** HotSpot has raised the limit as far as it may: each connection needs one. */
    static void checkDescriptors(int connections) throws IOException {
        if (ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean system) {
            long most = system.getMaxFileDescriptorCount();
            long needed = (long) connections + OTHER_DESCRIPTORS;
            if (most < needed) {
                throw new IOException(connections + " connections need " + needed
                        + " descriptors, but the hard limit is " + most + ": raise it (ulimit -Hn " + needed + ")");
            }
        }
    }

    /** Begins a window. */
    private RSocketFigures figures() {
        List<Long> loops = new ArrayList<>();
        group.forEach(loop -> loops.add(((SingleThreadEventExecutor) loop).threadProperties().id()));
        return new RSocketFigures(messages, loops);
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
     * @param warmUp seconds before the window, in which the connections come into their pace and the virtual machines compile
     * @param announcements get {@code window opens_ns=T lasts_ns=D in_ns=N} shortly before the window opens, T by
     *     CLOCK_MONOTONIC
     */
    String run(Transport transport, double warmUp, double seconds, Consumer<String> announcements)
            throws InterruptedException {
        long begun = System.nanoTime();
        long warms = (long) (warmUp * 1e9);
        long rests = Math.min(REST_NANOS, warms / 2);
        if (warms > 0) {
            sleepUntil(begun + warms / 2);
            // What reads the figures runs for the first time now, and with it the compiler: not in the window.
            measure(System.nanoTime());
        }
        sleepUntil(begun + warms - rests);
        check();
        tell(COLLECT);
        System.gc();
        TimeUnit.NANOSECONDS.sleep(rests);
        // HotSpot's clock is CLOCK_MONOTONIC.
        long opens = System.nanoTime() + NOTICE_NANOS;
        long lasts = (long) (seconds * 1e9);
        announcements.accept("window opens_ns=" + opens + " lasts_ns=" + lasts + " in_ns=" + NOTICE_NANOS);
        sleepUntil(opens);
        return line("client", transport, measure(opens + lasts));
    }

    /** Both ends' figures of a window from now until then, as members of a JSON object. */
    private String measure(long until) throws InterruptedException {
        tell(WINDOW_BEGINS);
        RSocketFigures figures = figures();
        sleepUntil(until);
        RSocketFigures.Window window = figures.end();
        tell(WINDOW_ENDS);
        String told = requesters.get(0).told().poll(ANSWER_SECONDS, TimeUnit.SECONDS);
        check();
        if (told == null) {
            throw new IllegalStateException("the server has not told its figures");
        }
        return json(window, Window.figures(told));
    }

    private static void sleepUntil(long nanoTime) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(nanoTime - System.nanoTime());
    }

    private static String json(RSocketFigures.Window window, Map<String, Number> server) {
        StringBuilder intervals = new StringBuilder();
        for (int second = 0; second < window.eachSecond().size(); second++) {
            intervals.append(second == 0 ? "" : ",")
                    .append("{\"at_seconds\":" + (second + 1) + ",\"requests\":")
                    .append(window.eachSecond().get(second) + "}");
        }
        return window.json() + ",\"requests\":" + window.messages()
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
        RSocketCase load;
        InetSocketAddress address = null;
        int loops = 1;
        double warmUp = 60;
        double seconds = 10;
        try {
            if (words.size() % 2 != 0) {
                throw new IllegalArgumentException("an option lacks its value");
            }
            List<String> ofTheCase = new ArrayList<>();
            for (int at = 0; at < words.size(); at += 2) {
                String value = words.get(at + 1);
                switch (words.get(at)) {
                    case "--engine" -> transport = known(Transport.of(value), value);
                    case "--connect" -> address = NettyPeer.hostAndPort(value);
                    case "--loops" -> loops = Integer.parseInt(value);
                    case "--seconds" -> seconds = seconds(value);
                    case "--warm-up" -> warmUp = seconds(value);
                    default -> ofTheCase.addAll(words.subList(at, at + 2));
                }
            }
            load = asked(ofTheCase);
            known(address, "--connect is missing");
        } catch (IllegalArgumentException wrong) {
            complaints.accept("netty rsocket-load: " + wrong.getMessage());
            return 2;
        }
        try {
            try (RSocketLoad client = connect(transport, loops, address, load)) {
                out.accept(client.run(transport, warmUp, seconds, complaints));
                return 0;
            }
        } catch (Exception failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            complaints.accept("netty rsocket-load: " + failure.getMessage() + ": " + cause);
            return 1;
        }
    }

    /** The case that {@code --case} names, wherever that stands, with what the other options change of it. */
    static RSocketCase asked(List<String> options) {
        RSocketCase load = RSocketCase.of("rpc-backend");
        for (int at = 0; at < options.size(); at += 2) {
            if (options.get(at).equals("--case")) {
                load = known(RSocketCase.of(options.get(at + 1)), options.get(at + 1));
            }
        }
        for (int at = 0; at < options.size(); at += 2) {
            String option = options.get(at);
            if (!option.equals("--case")) {
                load = known(load.with(option, Integer.parseInt(options.get(at + 1))), option);
            }
        }
        return load;
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
