package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPromise;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.ServerChannel;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * The options and addresses of a channel through its life, asked for and set: on Netty's epoll transport first, and the same on
 * this one.
 */
class OptionTracesTest {
    private static final InetSocketAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0);

    private enum Kind {
        SERVER,
        CHILD,
        CLIENT,
        DATAGRAM,
        UNIX_SERVER,
        UNIX_CHILD,
        UNIX_CLIENT;

        boolean isUnix() {
            return name().startsWith("UNIX");
        }
    }

    /** A server, a client of it, and the connection of that one; or a datagram channel alone. */
    private static final class Channels implements AutoCloseable {
        private final EventLoopGroup group;
        private final Map<String, Channel> made = new LinkedHashMap<>();

        Channels(Stock stock, Kind kind, Path folder) throws Exception {
            group = Scene.group(stock);
            if (kind == Kind.DATAGRAM) {
                made.put(
                        "DATAGRAM",
                        new Bootstrap()
                                .group(group)
                                .channelFactory(() -> stock == null
                                        ? new QuoitDatagramChannel(SocketProtocolFamily.INET)
                                        : stock.datagram(SocketProtocolFamily.INET))
                                .handler(new ChannelInboundHandlerAdapter())
                                .bind(LOOPBACK)
                                .sync()
                                .channel());
                return;
            }
            Peers.Accepted accepted = new Peers.Accepted();
            Class<? extends ServerChannel> serverClass;
            Class<? extends Channel> clientClass;
            SocketAddress address = LOOPBACK;
            if (kind.isUnix()) {
                address = new DomainSocketAddress(folder.resolve(stock + ".socket").toString());
                serverClass = stock == null ? QuoitServerDomainSocketChannel.class : EpollServerDomainSocketChannel.class;
                clientClass = stock == null ? QuoitDomainSocketChannel.class : EpollDomainSocketChannel.class;
            } else {
                serverClass = stock == null ? QuoitServerSocketChannel.class : stock.serverClass;
                clientClass = stock == null ? QuoitSocketChannel.class : stock.streamClass;
            }
            String prefix = kind.isUnix() ? "UNIX_" : "";
            Channel server = new ServerBootstrap()
                    .group(group)
                    .channel(serverClass)
                    .childHandler(accepted)
                    .bind(address)
                    .sync()
                    .channel();
            made.put(prefix + "SERVER", server);
            ChannelHandler nothing = new ChannelInboundHandlerAdapter();
            made.put(
                    prefix + "CLIENT",
                    new Bootstrap()
                            .group(group)
                            .channel(clientClass)
                            .handler(nothing)
                            .connect(server.localAddress())
                            .sync()
                            .channel());
            Channel child = accepted.next();
            // Its handler is added in the run in which it is registered and becomes active.
            child.eventLoop().submit(() -> {}).sync();
            made.put(prefix + "CHILD", child);
        }

        Channel channel(Kind kind) {
            return made.get(kind.name());
        }

        @Override
        public void close() throws Exception {
            for (Channel channel : made.values()) {
                channel.close().sync();
            }
            group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        }
    }

    /** What an answer is; objects that differ from run to run by their kind. */
    private static String told(Object value) {
        if (value instanceof Number || value instanceof Boolean || value == null) {
            return String.valueOf(value);
        }
        if (value instanceof RecvByteBufAllocator) {
            return "an allocator";
        }
        if (value instanceof WriteBufferWaterMark marks) {
            return marks.low() + " to " + marks.high();
        }
        return value.getClass().getSimpleName();
    }

    /** Options that both have, so that their values can be compared. */
    private static Set<ChannelOption<?>> options(Kind kind, Path folder) throws Exception {
        Set<ChannelOption<?>> both;
        try (Channels theirs = new Channels(Stock.EPOLL, kind, folder)) {
            // By name, as an option's own order is another in each process: the low water mark before the high one, which moves it.
            both = new TreeSet<>(Comparator.<ChannelOption<?>, String>comparing(ChannelOption::name).reversed());
            both.addAll(theirs.channel(kind).config().getOptions().keySet());
        }
        try (Channels ours = new Channels(null, kind, folder)) {
            both.retainAll(ours.channel(kind).config().getOptions().keySet());
        }
        return both;
    }

    /** An address; what of it differs from run to run is left out. */
    private static String told(SocketAddress address, Channels channels) {
        if (address == null) {
            return "none";
        }
        for (Map.Entry<String, Channel> made : channels.made.entrySet()) {
            if (address.equals(made.getValue().localAddress()) && !(address instanceof DomainSocketAddress unix && unix.path().isEmpty())) {
                return address.getClass().getSimpleName() + " of " + made.getKey();
            }
        }
        return address.getClass().getSimpleName()
                + (address instanceof DomainSocketAddress unix ? " \"" + unix.path() + "\"" : "");
    }

    private static Object another(ChannelOption<?> option, Object value) {
        if (value instanceof Boolean on) {
            return !on;
        }
        if (value instanceof Integer number) {
            // Not the bits of ECN, which are the kernel's own: IP_TOS of TCP takes them from nobody, but on Linux 5.10 IPV6_TCLASS
            // does, and Netty's own sockets are of IPv6.
            return option == ChannelOption.IP_TOS ? number ^ 16 : number <= 0 ? 1 : number + 1;
        }
        return value instanceof Long number ? (Object) (number + 1) : value;
    }

    private static String asked(Channel channel, ChannelOption<?> option) {
        try {
            return told(channel.config().getOption(option));
        } catch (RuntimeException failure) {
            return failure.getClass().getSimpleName();
        }
    }

    @SuppressWarnings("unchecked")
    private static String set(Channel channel, ChannelOption<?> option, Object value) {
        try {
            return "taken " + channel.config().setOption((ChannelOption<Object>) option, value);
        } catch (RuntimeException failure) {
            return failure.getClass().getSimpleName();
        }
    }

    private static Map<String, String> traced(Stock stock, Kind kind, Path folder, Set<ChannelOption<?>> options)
            throws Exception {
        Map<String, String> trace = new TreeMap<>();
        try (Channels channels = new Channels(stock, kind, folder)) {
            Channel channel = channels.channel(kind);
            for (ChannelOption<?> option : options) {
                Object before = channel.config().getOption(option);
                String told = asked(channel, option) + "; ";
                // A change of autoRead makes something happen.
                if (option != ChannelOption.AUTO_READ && before != null) {
                    told += set(channel, option, another(option, before)) + " " + asked(channel, option) + "; ";
                    told += set(channel, option, before) + " " + asked(channel, option);
                }
                trace.put(option.name(), told);
            }
            trace.put("addresses", told(channel.localAddress(), channels) + " to " + told(channel.remoteAddress(), channels));
            Map<ChannelOption<?>, Object> last = channel.config().getOptions();
            channel.close().sync();
            // The loop lets go of it a little later.
            while (channel.isRegistered()) {
                channel.eventLoop().submit(() -> {}).sync();
            }
            trace.put(
                    "addresses when closed",
                    told(channel.localAddress(), channels) + " to " + told(channel.remoteAddress(), channels));
            for (ChannelOption<?> option : options) {
                String closed = "; closed: " + asked(channel, option);
                if (last.get(option) != null) {
                    closed += ", " + set(channel, option, last.get(option));
                }
                trace.merge(option.name(), closed, String::concat);
            }
        }
        return trace;
    }

    private static String lines(Map<String, String> trace) {
        return trace.entrySet().stream().map(Object::toString).collect(Collectors.joining("\n"));
    }

    /** The low water mark of streams, of which docs/netty.md tells. */
    private static final Map<String, String> LOW_MARK = Map.of(
            "WRITE_BUFFER_LOW_WATER_MARK",
            "61440; taken true 61441; taken true 61440; closed: 61440, taken true",
            "WRITE_BUFFER_WATER_MARK",
            "61440 to 65536; taken true 61440 to 65536; taken true 61440 to 65536; closed: 61440 to 65536, taken true");

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Map<Kind, Map<String, String>> DIFFERS = Map.of(
            Kind.SERVER,
            Map.of(
                    ChannelOption.TCP_FASTOPEN.name(),
                    "0; taken true 1; taken true 0; closed: ChannelException, ChannelException"),
            Kind.CHILD,
            LOW_MARK,
            Kind.CLIENT,
            LOW_MARK,
            Kind.DATAGRAM,
            Map.of(
                    "IP_MULTICAST_ALL",
                    "true; taken true false; taken true true; closed: ChannelException, ChannelException",
                    "IP_MULTICAST_TTL",
                    "1; taken true 2; taken true 1; closed: ChannelException, ChannelException",
                    "MAX_DATAGRAM_PAYLOAD_SIZE",
                    "65527; IllegalStateException 65527; IllegalStateException 65527; closed: 65527, taken true",
                    "UDP_GRO",
                    "false; IllegalStateException false; IllegalStateException false; closed: false, taken true"),
            Kind.UNIX_SERVER,
            Map.of(),
            Kind.UNIX_CHILD,
            LOW_MARK,
            Kind.UNIX_CLIENT,
            LOW_MARK);

    @ParameterizedTest
    @EnumSource
    void optionsAreAnsweredAsByNettysOwnTransport(Kind kind, @TempDir Path folder) throws Exception {
        Set<ChannelOption<?>> options = options(kind, folder);
        assertFalse(options.isEmpty());
        Map<String, String> theirs = traced(Stock.EPOLL, kind, folder, options);
        Map<String, String> ours = traced(null, kind, folder, options);
        DIFFERS.get(kind).forEach((option, here) -> {
            assertNotEquals(theirs.get(option), here, option + " differs no more");
            assertEquals(here, ours.put(option, theirs.get(option)), option);
        });
        assertEquals(lines(theirs), lines(ours));
    }

    /** What is set between the connect and its end: on Netty's transport the socket is there all the time. */
    @ParameterizedTest
    @EnumSource(names = {"CLIENT", "UNIX_CLIENT"})
    void whatIsSetDuringAConnectHolds(Kind kind, @TempDir Path folder) throws Exception {
        List<ChannelOption<Integer>> sizes = List.of(ChannelOption.SO_SNDBUF, ChannelOption.SO_RCVBUF);
        List<String> told = new ArrayList<>();
        for (Stock stock : new Stock[] {Stock.EPOLL, null}) {
            try (Channels channels = new Channels(stock, kind, folder)) {
                Channel first = channels.channel(kind);
                Channel client = new Bootstrap()
                        .group(channels.group)
                        .channel(first.getClass())
                        .handler(new ChannelInboundHandlerAdapter())
                        .option(ChannelOption.SO_SNDBUF, 30_000)
                        .register()
                        .sync()
                        .channel();
                ChannelPromise connected = client.newPromise();
                client.eventLoop()
                        .submit(() -> {
                            client.connect(first.remoteAddress(), connected);
                            sizes.forEach(size -> client.config().setOption(size, 20_000));
                            if (kind == Kind.CLIENT) {
                                client.config().setOption(ChannelOption.TCP_NODELAY, false);
                                client.config().setOption(ChannelOption.SO_KEEPALIVE, true);
                            }
                        })
                        .sync();
                connected.sync();
                told.add(sizes.stream().map(client.config()::getOption).toList() + ", "
                        + client.config().getOption(ChannelOption.TCP_NODELAY) + ", "
                        + client.config().getOption(ChannelOption.SO_KEEPALIVE));
                client.close().sync();
            }
        }
        assertEquals(told.get(0), told.get(1));
    }
}
