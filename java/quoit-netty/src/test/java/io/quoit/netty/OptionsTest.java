package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollChannelOption;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.unix.DomainSocketReadMode;
import io.netty.channel.unix.UnixChannelOption;
import io.netty.channel.uring.IoUringChannelOption;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The options of Netty's epoll transport, channel by channel: there, or refused; with a reason, if they are no mere hints. */
class OptionsTest {
    /** Netty's channels, each with ours of the same kind. */
    private static Map<Channel, Channel> pairs() {
        Epoll.ensureAvailability();
        Map<Channel, Channel> pairs = new LinkedHashMap<>();
        pairs.put(new EpollSocketChannel(), new QuoitSocketChannel());
        pairs.put(new EpollServerSocketChannel(), new QuoitServerSocketChannel());
        pairs.put(new EpollDatagramChannel(), new QuoitDatagramChannel());
        pairs.put(new EpollDomainSocketChannel(), new QuoitDomainSocketChannel());
        pairs.put(new EpollServerDomainSocketChannel(), new QuoitServerDomainSocketChannel());
        return pairs;
    }

    /** What asks for something. */
    private static Object on(ChannelOption<?> option, Object set) {
        if (option == EpollChannelOption.TCP_MD5SIG) {
            return Map.of(InetAddress.getLoopbackAddress(), new byte[] {1});
        }
        return set instanceof Boolean ? Boolean.TRUE : set;
    }

    /** What asks for nothing. */
    private static Object off(ChannelOption<?> option) {
        return option == EpollChannelOption.TCP_MD5SIG ? Map.of() : Boolean.FALSE;
    }

    @Test
    @SuppressWarnings("unchecked")
    void eachOfNettysEpollTransportIsThereOrRefused() {
        Set<String> unknown = new TreeSet<>();
        Set<String> unsupported = new TreeSet<>();
        for (Map.Entry<Channel, Channel> pair : pairs().entrySet()) {
            Channel ours = pair.getValue();
            Map<ChannelOption<?>, Object> known = ours.config().getOptions();
            for (Map.Entry<ChannelOption<?>, Object> theirs : pair.getKey().config().getOptions().entrySet()) {
                ChannelOption<Object> option = (ChannelOption<Object>) theirs.getKey();
                String where = ours.getClass().getSimpleName() + " " + option;
                if (known.containsKey(option)) {
                    Object value = theirs.getValue();
                    assertTrue(value == null || ours.config().setOption(option, value), where);
                    continue;
                }
                String name = option.name().replaceFirst(".*#", "");
                Object on = on(option, theirs.getValue());
                boolean set;
                try {
                    set = ours.config().setOption(option, on);
                } catch (UnsupportedOperationException refusal) {
                    assertTrue(refusal.getMessage().startsWith(name + ": Quoit's"), refusal.getMessage());
                    assertTrue(ours.config().setOption(option, off(option)), where);
                    unsupported.add(name);
                    continue;
                }
                assertFalse(set, where);
                unknown.add(name);
            }
            pair.getKey().unsafe().closeForcibly();
            ours.unsafe().closeForcibly();
        }
        // As docs/netty.md lists them, but for TCP_FASTOPEN of a Unix server, which epoll keeps and does not use.
        assertEquals(Set.of("EPOLL_MODE", "IP_BIND_ADDRESS_NO_PORT", "TCP_FASTOPEN", "TCP_FASTOPEN_CONNECT"), unknown);
        assertEquals(Set.of("IP_RECVORIGDSTADDR", "TCP_MD5SIG"), unsupported);
    }

    private static <T> void assertTaken(Channel channel, ChannelOption<T> option, T value) {
        assertTrue(channel.config().setOption(option, value), option.name());
        assertEquals(value, channel.config().getOption(option), option.name());
    }

    /** Which that transport has under names of its own, so that a program that comes from it would lose them silently. */
    @Test
    void thoseOfNettysIoUringTransportAreTheSame() {
        Channel client = new QuoitSocketChannel();
        assertTaken(client, IoUringChannelOption.TCP_CORK, true);
        assertTaken(client, IoUringChannelOption.TCP_NOTSENT_LOWAT, 4096L);
        assertTaken(client, IoUringChannelOption.TCP_KEEPIDLE, 33);
        assertTaken(client, IoUringChannelOption.TCP_KEEPINTVL, 7);
        assertTaken(client, IoUringChannelOption.TCP_KEEPCNT, 5);
        assertTaken(client, IoUringChannelOption.TCP_USER_TIMEOUT, 12_345);
        assertTaken(client, IoUringChannelOption.TCP_QUICKACK, true);
        assertEquals(33, client.config().getOption(EpollChannelOption.TCP_KEEPIDLE));
        assertFalse(client.config().setOption(IoUringChannelOption.IO_URING_BUFFER_GROUP_ID, (short) 1));
        assertFalse(client.config().setOption(IoUringChannelOption.IO_URING_WRITE_ZERO_COPY_THRESHOLD, 1));
        Channel server = new QuoitServerSocketChannel();
        assertTaken(server, IoUringChannelOption.TCP_DEFER_ACCEPT, 3);
        assertTaken(server, IoUringChannelOption.IP_FREEBIND, true);
        assertTaken(server, IoUringChannelOption.IP_TRANSPARENT, true);
        Channel datagram = new QuoitDatagramChannel();
        assertTaken(datagram, IoUringChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE, 1500);
        assertTaken(datagram, IoUringChannelOption.IP_MULTICAST_ALL, true);
        for (Channel made : List.of(client, server, datagram)) {
            made.unsafe().closeForcibly();
        }
    }

    @Test
    void unixSocketsReadBytes() {
        QuoitDomainSocketChannelConfig config = new QuoitDomainSocketChannel().config();
        assertEquals(DomainSocketReadMode.BYTES, config.getOption(UnixChannelOption.DOMAIN_SOCKET_READ_MODE));
        assertThrows(
                UnsupportedOperationException.class,
                () -> config.setOption(UnixChannelOption.DOMAIN_SOCKET_READ_MODE, DomainSocketReadMode.FILE_DESCRIPTORS));
    }

    @Test
    void theRoomForADatagramIsAtMostWhatOneMayHave() {
        QuoitDatagramChannelConfig config = new QuoitDatagramChannel().config();
        for (int[] setAndTaken : new int[][] {{1500, 1500}, {65_536, 65_527}, {0, 65_527}}) {
            assertTrue(config.setOption(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE, setAndTaken[0]));
            assertEquals(setAndTaken[1], config.getOption(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE));
        }
        assertThrows(
                IllegalArgumentException.class,
                () -> config.setOption(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE, -1));
    }

    @Test
    void aBootstrapFailsWithTheReason() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            Throwable cause = new Bootstrap()
                    .group(group)
                    .channel(QuoitDatagramChannel.class)
                    .option(ChannelOption.valueOf("IP_RECVORIGDSTADDR"), true)
                    .handler(new ChannelInboundHandlerAdapter())
                    .bind(new InetSocketAddress("127.0.0.1", 0))
                    .await()
                    .cause();
            assertInstanceOf(UnsupportedOperationException.class, cause);
            assertTrue(cause.getMessage().contains("leave the option out"), cause.getMessage());
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
