package io.quoit.netty;

import io.netty.channel.ChannelOption;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** A socket option that is one of Netty's {@link ChannelOption}s and an {@code int} to the kernel. */
enum KernelOption {
    KEEPALIVE(ChannelOption.SO_KEEPALIVE, Descriptors.SOL_SOCKET, Descriptors.SO_KEEPALIVE),
    SEND_BUFFER(ChannelOption.SO_SNDBUF, Descriptors.SOL_SOCKET, Descriptors.SO_SNDBUF),
    RECEIVE_BUFFER(ChannelOption.SO_RCVBUF, Descriptors.SOL_SOCKET, Descriptors.SO_RCVBUF),
    REUSE_ADDRESS(ChannelOption.SO_REUSEADDR, Descriptors.SOL_SOCKET, Descriptors.SO_REUSEADDR),
    REUSE_PORT(QuoitChannelOption.SO_REUSEPORT, Descriptors.SOL_SOCKET, Descriptors.SO_REUSEPORT),
    BROADCAST(ChannelOption.SO_BROADCAST, Descriptors.SOL_SOCKET, Descriptors.SO_BROADCAST),
    BUSY_POLL(QuoitChannelOption.SO_BUSY_POLL, Descriptors.SOL_SOCKET, Descriptors.SO_BUSY_POLL),
    TYPE_OF_SERVICE(ChannelOption.IP_TOS, Descriptors.IPPROTO_IP, Descriptors.IP_TOS),
    FREE_BIND(QuoitChannelOption.IP_FREEBIND, Descriptors.IPPROTO_IP, Descriptors.IP_FREEBIND),
    TRANSPARENT(QuoitChannelOption.IP_TRANSPARENT, Descriptors.IPPROTO_IP, Descriptors.IP_TRANSPARENT),
    NO_DELAY(ChannelOption.TCP_NODELAY, Descriptors.IPPROTO_TCP, Descriptors.TCP_NODELAY),
    CORK(QuoitChannelOption.TCP_CORK, Descriptors.IPPROTO_TCP, Descriptors.TCP_CORK),
    KEEP_IDLE(QuoitChannelOption.TCP_KEEPIDLE, Descriptors.IPPROTO_TCP, Descriptors.TCP_KEEPIDLE),
    KEEP_INTERVAL(QuoitChannelOption.TCP_KEEPINTVL, Descriptors.IPPROTO_TCP, Descriptors.TCP_KEEPINTVL),
    KEEP_COUNT(QuoitChannelOption.TCP_KEEPCNT, Descriptors.IPPROTO_TCP, Descriptors.TCP_KEEPCNT),
    USER_TIMEOUT(QuoitChannelOption.TCP_USER_TIMEOUT, Descriptors.IPPROTO_TCP, Descriptors.TCP_USER_TIMEOUT),
    QUICK_ACK(QuoitChannelOption.TCP_QUICKACK, Descriptors.IPPROTO_TCP, Descriptors.TCP_QUICKACK),
    NOT_SENT_LOW(QuoitChannelOption.TCP_NOTSENT_LOWAT, Descriptors.IPPROTO_TCP, Descriptors.TCP_NOTSENT_LOWAT),
    DEFER_ACCEPT(QuoitChannelOption.TCP_DEFER_ACCEPT, Descriptors.IPPROTO_TCP, Descriptors.TCP_DEFER_ACCEPT),
    FAST_OPEN(ChannelOption.TCP_FASTOPEN, Descriptors.IPPROTO_TCP, Descriptors.TCP_FASTOPEN);

    private static final String OF_EPOLL = "io.netty.channel.epoll.EpollChannelOption#";
    private static final String OF_IO_URING = "io.netty.channel.uring.IoUringChannelOption#";
    private static final Map<ChannelOption<?>, KernelOption> BY_OPTION;

    static {
        Map<ChannelOption<?>, KernelOption> all = new LinkedHashMap<>();
        for (KernelOption option : values()) {
            all.put(option.option, option);
            String name = option.option.name();
            if (name.startsWith(OF_EPOLL)) {
                // Netty's io_uring transport has them once more, under names of its own.
                all.put(ChannelOption.valueOf(OF_IO_URING + name.substring(OF_EPOLL.length())), option);
            }
        }
        BY_OPTION = Collections.unmodifiableMap(all);
    }

    final ChannelOption<?> option;
    final int level;
    final int name;

    KernelOption(ChannelOption<?> option, int level, int name) {
        this.option = option;
        this.level = level;
        this.name = name;
    }

    /** The kernel's option behind one of Netty's; null if there is none. */
    static KernelOption of(ChannelOption<?> option) {
        return BY_OPTION.get(option);
    }

    private boolean isFlag() {
        return switch (this) {
            case KEEPALIVE, REUSE_ADDRESS, REUSE_PORT, BROADCAST, FREE_BIND, TRANSPARENT, NO_DELAY, CORK, QUICK_ACK -> true;
            default -> false;
        };
    }

    /** A value of Netty's as the kernel has it. */
    int toKernel(Object value) {
        return value instanceof Boolean flag ? (flag ? 1 : 0) : ((Number) value).intValue();
    }

    /** A value of the kernel's as Netty has it. */
    Object fromKernel(int value) {
        if (isFlag()) {
            return value != 0;
        }
        return this == NOT_SENT_LOW ? (Object) (long) value : (Object) value;
    }
}
