package io.quoit.netty;

import io.netty.channel.ChannelOption;
import io.netty.channel.unix.UnixChannelOption;

/**
 * Options of Quoit's channels beside Netty's own. Those of the kernel that Netty's epoll transport has too bear the same
 * names.
 *
 * @param <T> the type of the value
 */
public final class QuoitChannelOption<T> extends UnixChannelOption<T> {
    /** Bytes that may wait to be sent before a write fails with {@link PendingWritesException}. Default 0: no limit. */
    public static final ChannelOption<Long> PENDING_WRITE_LIMIT =
            valueOf(QuoitChannelOption.class, "PENDING_WRITE_LIMIT");
    /** {@code TCP_CORK} of {@code tcp(7)}. */
    public static final ChannelOption<Boolean> TCP_CORK = ofEpoll("TCP_CORK");
    /** {@code TCP_NOTSENT_LOWAT} in bytes. */
    public static final ChannelOption<Long> TCP_NOTSENT_LOWAT = ofEpoll("TCP_NOTSENT_LOWAT");
    /** {@code TCP_KEEPIDLE} in seconds. */
    public static final ChannelOption<Integer> TCP_KEEPIDLE = ofEpoll("TCP_KEEPIDLE");
    /** {@code TCP_KEEPINTVL} in seconds. */
    public static final ChannelOption<Integer> TCP_KEEPINTVL = ofEpoll("TCP_KEEPINTVL");
    /** {@code TCP_KEEPCNT}. */
    public static final ChannelOption<Integer> TCP_KEEPCNT = ofEpoll("TCP_KEEPCNT");
    /** {@code TCP_USER_TIMEOUT} in milliseconds. */
    public static final ChannelOption<Integer> TCP_USER_TIMEOUT = ofEpoll("TCP_USER_TIMEOUT");
    /** {@code TCP_QUICKACK}. */
    public static final ChannelOption<Boolean> TCP_QUICKACK = ofEpoll("TCP_QUICKACK");
    /** {@code TCP_DEFER_ACCEPT} in seconds, of a listening socket. */
    public static final ChannelOption<Integer> TCP_DEFER_ACCEPT = ofEpoll("TCP_DEFER_ACCEPT");
    /** {@code SO_BUSY_POLL} in microseconds. */
    public static final ChannelOption<Integer> SO_BUSY_POLL = ofEpoll("SO_BUSY_POLL");
    /**
     * The most bytes of a datagram that a datagram channel receives; what is longer comes cut. Default 65,527, the most that
     * IPv6 has room for, which 0 and more than that mean too. Set it before the channel is bound or connected.
     */
    public static final ChannelOption<Integer> MAX_DATAGRAM_PAYLOAD_SIZE = valueOf("MAX_DATAGRAM_PAYLOAD_SIZE");
    /**
     * Whether the kernel may join datagrams of one sender ({@code UDP_GRO}), which come one by one all the same. Default
     * false. Set it before the channel is bound or connected.
     */
    public static final ChannelOption<Boolean> UDP_GRO = valueOf("UDP_GRO");
    /**
     * How many slots a datagram channel's receive memory has, each with room for one datagram or, with {@link #UDP_GRO},
     * 64 KiB. 1 to 32,768; default 64. Set it before the channel is bound or connected.
     */
    public static final ChannelOption<Integer> DATAGRAM_SLOTS = valueOf(QuoitChannelOption.class, "DATAGRAM_SLOTS");
    /**
     * Whether a datagram channel, connected or not, is told which receivers the network did not bring datagrams to ({@code
     * IP_RECVERR} of {@code ip(7)}, and its like of IPv6): {@code exceptionCaught} is given a
     * {@link ReceiverUnreachableException} for each answer by ICMP. Default false: only connected ones are told, without an
     * address. Set it before the channel is bound or connected.
     */
    public static final ChannelOption<Boolean> IP_RECVERR = valueOf(QuoitChannelOption.class, "IP_RECVERR");
    /** {@code IP_MULTICAST_ALL} of {@code ip(7)}, and its like of IPv6. */
    public static final ChannelOption<Boolean> IP_MULTICAST_ALL = valueOf("IP_MULTICAST_ALL");
    /** {@code IP_FREEBIND} of {@code ip(7)}. */
    public static final ChannelOption<Boolean> IP_FREEBIND = valueOf("IP_FREEBIND");
    /** {@code IP_TRANSPARENT} of {@code ip(7)}. */
    public static final ChannelOption<Boolean> IP_TRANSPARENT = valueOf("IP_TRANSPARENT");

    @SuppressWarnings("unused")
    private QuoitChannelOption() {}

    /** The option of Netty's epoll transport, by its name: a bootstrap that sets it need not be changed. */
    private static <T> ChannelOption<T> ofEpoll(String name) {
        return valueOf("io.netty.channel.epoll.EpollChannelOption#" + name);
    }
}
