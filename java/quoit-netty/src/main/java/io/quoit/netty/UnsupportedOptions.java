package io.quoit.netty;

import io.netty.channel.ChannelOption;
import java.util.Map;

/**
 * Options of Netty's epoll transport that this one has not, and without which a program would not do what it was written
 * for. They are known by their names, as the classes of that transport need not be there. Those that only make something
 * faster are refused as Netty refuses unknown options, for programs set them wherever they run.
 */
final class UnsupportedOptions {
    private static final Map<String, String> REASONS = Map.of(
            "IP_RECVORIGDSTADDR", "Quoit's datagrams come without their destination",
            "TCP_MD5SIG", "Quoit's connections have no signatures");

    private UnsupportedOptions() {}

    /**
     * Whether this is such an option, and its value what holds anyway.
     *
     * @throws UnsupportedOperationException if it is one, and the value asks for something
     */
    static boolean isOff(ChannelOption<?> option, Object value) {
        String reason = REASONS.get(option.name());
        if (reason == null) {
            return false;
        }
        if (Boolean.FALSE.equals(value) || value instanceof Map<?, ?> keys && keys.isEmpty()) {
            return true;
        }
        throw new UnsupportedOperationException(option.name() + ": " + reason + "; leave the option out");
    }
}
