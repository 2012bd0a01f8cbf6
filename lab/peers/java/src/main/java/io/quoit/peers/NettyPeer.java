package io.quoit.peers;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.uring.IoUringChannelOption;
import io.netty.handler.codec.http.HttpRequestDecoder;
import io.netty.handler.codec.http.HttpResponseEncoder;
import io.netty.util.Version;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A server on Netty for the lab: {@code netty echo|http|h2c|websocket|rpc|rsocket [--engine E] [--listen HOST:PORT]
 * [--loops N] [--coalesce US] [--metrics HOST:PORT]}.
 */
public final class NettyPeer {
    private static final int BACKLOG = 4096;
    private static final int MOST_LOOPS = 1024;

    private NettyPeer() {}

    static final class Usage extends Exception {
        private static final long serialVersionUID = 1L;

        Usage(String message) {
            super(message);
        }
    }

    /** What the command line asks for; {@code metrics} is null where nothing is to be told. */
    record Arguments(
            String service,
            Transport transport,
            InetSocketAddress listen,
            int loops,
            long coalesce,
            InetSocketAddress metrics) {
        private static final String USAGE =
                "usage: netty echo|http|h2c|websocket|rpc|rsocket"
                        + " [--engine nio|epoll|uring|uring-rings|quoit-uring|quoit-epoll] [--listen HOST:PORT] [--loops N]"
                        + " [--coalesce US] [--metrics HOST:PORT]";

        private static final List<String> SERVICES = List.of("echo", "http", "h2c", "websocket", "rpc", "rsocket");

        static Arguments of(String[] words) throws Usage {
            if (words.length % 2 == 0 || !SERVICES.contains(words[0])) {
                throw new Usage(USAGE);
            }
            Transport transport = Transport.QUOIT_URING;
            InetSocketAddress listen = new InetSocketAddress("127.0.0.1", 0);
            int loops = 1;
            long coalesce = 0;
            InetSocketAddress metrics = null;
            for (int at = 1; at < words.length; at += 2) {
                String value = words[at + 1];
                switch (words[at]) {
                    case "--engine" -> transport = transport(value);
                    case "--listen" -> listen = address("--listen", value);
                    case "--loops" -> loops = loops(value);
                    case "--coalesce" -> coalesce = coalesce(value);
                    case "--metrics" -> metrics = address("--metrics", value);
                    default -> throw new Usage(USAGE);
                }
            }
            if (metrics != null && !transport.hasFigures()) {
                throw new Usage("--metrics: quoit-uring and quoit-epoll have figures, " + transport.word + " has none");
            }
            return new Arguments(words[0], transport, listen, loops, coalesce, metrics);
        }

        private static Transport transport(String word) throws Usage {
            Transport transport = Transport.of(word);
            if (transport == null) {
                throw new Usage(USAGE);
            }
            return transport;
        }

        private static InetSocketAddress address(String option, String text) throws Usage {
            try {
                return hostAndPort(text);
            } catch (IllegalArgumentException none) {
                throw new Usage(option + ": " + none.getMessage());
            }
        }

        private static int loops(String text) throws Usage {
            if (!text.matches("[1-9][0-9]{0,3}") || Integer.parseInt(text) > MOST_LOOPS) {
                throw new Usage("--loops takes 1 to " + MOST_LOOPS + ", and not '" + text + "'");
            }
            return Integer.parseInt(text);
        }

        private static long coalesce(String text) throws Usage {
            if (!text.matches("[0-9]{1,6}")) {
                throw new Usage("--coalesce takes microseconds, and not '" + text + "'");
            }
            return Long.parseLong(text);
        }

        IoHandlerFactory factory() {
            return transport.coalescing(TimeUnit.MICROSECONDS.toNanos(coalesce));
        }
    }

    /** The address that a text of the form HOST:PORT names. */
    static InetSocketAddress hostAndPort(String text) {
        int colon = text.lastIndexOf(':');
        if (colon > 0 && text.substring(colon + 1).matches("[0-9]{1,5}")) {
            InetSocketAddress address =
                    new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
            if (!address.isUnresolved()) {
                return address;
            }
        }
        throw new IllegalArgumentException("'" + text + "' is no HOST:PORT");
    }

    /**
     * Serves until a signal arrives, or runs a load.
     *
     * @param words the command line
     */
    public static void main(String[] words) {
        if (words.length > 0 && words[0].equals("rsocket-load")) {
            List<String> options = List.of(words).subList(1, words.length);
            System.exit(RSocketLoad.main(options, System.out::println, System.err::println));
        }
        Arguments arguments;
        try {
            arguments = Arguments.of(words.length == 0 ? new String[] {"", ""} : words);
        } catch (Usage wrong) {
            System.err.println("netty: " + wrong.getMessage());
            System.exit(2);
            return;
        }
        InetSocketAddress address;
        try {
            address = serve(arguments);
        } catch (Exception | LinkageError failure) {
            System.err.println("netty: serving on " + arguments.listen + ": " + failure);
            System.exit(1);
            return;
        }
        // Before the ready line: whoever waits for that finds the rest said.
        if (arguments.metrics != null) {
            try {
                System.err.println("metrics on " + text(Figures.serve(arguments.metrics)));
            } catch (IOException failure) {
                System.err.println("netty: serving metrics on " + arguments.metrics + ": " + failure);
                System.exit(1);
                return;
            }
        }
        // A signal ends it with 0. The other rivals do not wait for their connections either.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(0)));
        String version = Version.identify().get("netty-transport").artifactVersion();
        System.out.println("listening on " + text(address) + " engine=netty-" + arguments.transport.word + " loops="
                + arguments.loops + (arguments.coalesce == 0 ? "" : " coalesce=" + arguments.coalesce) + " version=" + version);
    }

    private static String text(InetSocketAddress address) {
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    /** Begins to serve, and answers where. */
    private static InetSocketAddress serve(Arguments arguments) throws InterruptedException {
        if (arguments.service.equals("rsocket")) {
            return RSocketLoad.serve(
                            arguments.transport,
                            arguments.factory(),
                            arguments.loops,
                            arguments.listen,
                            System.out::println)
                    .address();
        }
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(arguments.loops, arguments.factory());
        Channel server = bootstrap(arguments.service, arguments.transport, group)
                .bind(arguments.listen)
                .sync()
                .channel();
        return (InetSocketAddress) server.localAddress();
    }

    static ServerBootstrap bootstrap(String service, Transport transport, EventLoopGroup group) {
        ServerBootstrap bootstrap = new ServerBootstrap()
                .group(group)
                .channel(transport.serverChannel)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .childOption(ChannelOption.TCP_NODELAY, true);
        if (transport == Transport.URING_RINGS) {
            bootstrap.childOption(IoUringChannelOption.IO_URING_BUFFER_GROUP_ID, Transport.BUFFER_GROUP);
        }
        Consumer<ChannelPipeline> handlers = handlers(service, group);
        return bootstrap.childHandler(new ChannelInitializer<SocketChannel>() {
            @Override
            protected void initChannel(SocketChannel channel) {
                handlers.accept(channel.pipeline());
            }
        });
    }

    /** What a service adds to each connection. */
    private static Consumer<ChannelPipeline> handlers(String service, EventLoopGroup group) {
        switch (service) {
            case "echo" -> {
                ChannelHandler echo = new Echo();
                return pipeline -> pipeline.addLast(echo);
            }
            case "http" -> {
                ChannelHandler hello = new Hello(group);
                return pipeline -> pipeline.addLast(new HttpResponseEncoder(), new HttpRequestDecoder(), hello);
            }
            case "h2c" -> {
                return Http2Hello::add;
            }
            case "websocket" -> {
                return WebSocketEcho::add;
            }
            case "rpc" -> {
                return pipeline -> pipeline.addLast(new Rpc());
            }
            default -> throw new IllegalArgumentException(service);
        }
    }

    /** Sends back what comes, once a run of reads. */
    @ChannelHandler.Sharable
    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message, context.voidPromise());
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            // A peer that does not read is not read from.
            context.channel().config().setAutoRead(context.channel().isWritable());
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }
}
