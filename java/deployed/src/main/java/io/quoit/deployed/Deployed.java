package io.quoit.deployed;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.util.concurrent.GlobalEventExecutor;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitTransport;
import java.net.InetSocketAddress;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A server as a cluster runs it: beside what it serves it has an address for metrics and probes, which goes on answering
 * while the server drains. {@code docs/kubernetes.md} says who asks. That address is NIO's, not the loops'.
 *
 * <pre>Deployed --listen=[::]:8080 --metrics=[::]:9100 --engine=auto --loops=1 --connections=16384 --drain=10</pre>
 */
final class Deployed {
    private Deployed() {}

    public static void main(String[] arguments) {
        Settings settings;
        try {
            settings = Settings.parse(arguments);
        } catch (IllegalArgumentException problem) {
            System.err.println("deployed: " + problem.getMessage());
            System.exit(2);
            return;
        }
        AtomicBoolean draining = new AtomicBoolean();
        ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);

        QuoitIoHandlerConfig config = QuoitIoHandlerConfig.defaults()
                .withEngine(settings.engine())
                .withConnections(settings.connections());
        if (settings.engine() != QuoitEngine.AUTO) {
            Quoit.ensureAvailability();
        }
        QuoitTransport transport = Quoit.transport(config);
        EventLoopGroup loops = new MultiThreadIoEventLoopGroup(settings.loops(), transport.ioHandlerFactory());
        Channel server = listen(loops, transport.serverSocketChannel(), settings.listen(), new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel channel) {
                connections.add(channel);
                channel.pipeline().addLast(new HttpServerCodec(), new Hello(draining));
            }
        });
        EventLoopGroup watched = new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
        Channel metrics = listen(watched, NioServerSocketChannel.class, settings.metrics(), new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel channel) {
                channel.pipeline().addLast(new HttpServerCodec(), new Probes(draining));
            }
        });
        // SIGTERM and SIGINT.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            draining.set(true);
            // Nobody new; who is idle goes, and who is not, when it is answered.
            server.close().syncUninterruptibly();
            connections.forEach(connection -> connection.pipeline().fireUserEventTriggered(Hello.DRAIN));
            connections.newCloseFuture().awaitUninterruptibly(settings.drain(), TimeUnit.SECONDS);
            loops.shutdownGracefully(0, 2, TimeUnit.SECONDS).syncUninterruptibly();
            watched.shutdownGracefully(0, 2, TimeUnit.SECONDS).syncUninterruptibly();
            // All is over as it should be; Java itself would end with 143.
            Runtime.getRuntime().halt(0);
        }));
        System.out.println("listening on " + address(server));
        System.out.println("metrics on " + address(metrics));
    }

    private static Channel listen(
            EventLoopGroup group,
            Class<? extends ServerSocketChannel> channel,
            InetSocketAddress address,
            ChannelInitializer<Channel> handlers) {
        return new ServerBootstrap()
                .group(group)
                .channel(channel)
                .childHandler(handlers)
                .bind(address)
                .syncUninterruptibly()
                .channel();
    }

    private static String address(Channel channel) {
        InetSocketAddress address = (InetSocketAddress) channel.localAddress();
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    /** What the command line says; what it does not say is as by default. */
    private record Settings(
            InetSocketAddress listen, InetSocketAddress metrics, QuoitEngine engine, int loops, int connections, int drain) {
        static Settings parse(String[] arguments) {
            InetSocketAddress listen = new InetSocketAddress("127.0.0.1", 8080);
            InetSocketAddress metrics = new InetSocketAddress("127.0.0.1", 9100);
            QuoitEngine engine = QuoitEngine.AUTO;
            int loops = 1;
            int connections = 16_384;
            int drain = 10;
            for (String argument : arguments) {
                String[] parts = argument.split("=", 2);
                if (parts.length != 2) {
                    throw new IllegalArgumentException(argument + " is to have the form --NAME=VALUE");
                }
                String value = parts[1];
                switch (parts[0]) {
                    case "--listen" -> listen = place(value);
                    case "--metrics" -> metrics = place(value);
                    case "--engine" -> engine = QuoitEngine.valueOf(value.toUpperCase(Locale.ROOT));
                    case "--loops" -> loops = Integer.parseInt(value);
                    case "--connections" -> connections = Integer.parseInt(value);
                    case "--drain" -> drain = Integer.parseInt(value);
                    default -> throw new IllegalArgumentException("there is no option " + parts[0]);
                }
            }
            return new Settings(listen, metrics, engine, loops, connections, drain);
        }

        /** {@code HOST:PORT}, or {@code [IPv6]:PORT}. */
        private static InetSocketAddress place(String text) {
            int colon = text.lastIndexOf(':');
            if (colon < 0) {
                throw new IllegalArgumentException(text + " is to have the form HOST:PORT");
            }
            return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
        }
    }
}
