package io.quoit.netty;

import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Multicast by socket options, of both families: {@code struct group_req} and {@code group_source_req} of RFC 3678. */
final class Multicast {
    /** The calls, numbered as the kernel has them. */
    static final int JOIN = 42;

    static final int BLOCK = 43;
    static final int LEAVE = 45;
    static final int JOIN_SOURCE = 46;
    static final int LEAVE_SOURCE = 47;

    private static final int INTERFACE_BYTES = 8;
    private static final int ADDRESS_BYTES = 128;

    private Multicast() {}

    /**
     * Changes a membership.
     *
     * @param via the interface; null: the kernel chooses
     * @param source of the datagrams, for calls that have one; otherwise null
     * @throws io.netty.channel.ChannelException if the kernel refuses
     */
    static void change(int descriptor, int call, InetAddress group, NetworkInterface via, InetAddress source) {
        int addresses = source == null ? 1 : 2;
        ByteBuffer room = ByteBuffer.allocateDirect(INTERFACE_BYTES + addresses * ADDRESS_BYTES)
                .order(ByteOrder.nativeOrder());
        room.putInt(0, index(via));
        Addresses.write(new InetSocketAddress(group, 0), room, INTERFACE_BYTES);
        if (source != null) {
            Addresses.write(new InetSocketAddress(source, 0), room, INTERFACE_BYTES + ADDRESS_BYTES);
        }
        boolean six = group instanceof Inet6Address;
        Descriptors.set(descriptor, six ? Descriptors.IPPROTO_IPV6 : Descriptors.IPPROTO_IP, call, room);
    }

    /** The interface that multicast leaves by. */
    static void leaveBy(int descriptor, boolean six, NetworkInterface via) {
        // struct ip_mreqn: group, address, interface.
        ByteBuffer room = ByteBuffer.allocateDirect(12).order(ByteOrder.nativeOrder());
        room.putInt(8, index(via));
        Descriptors.set(descriptor, Descriptors.IPPROTO_IP, Descriptors.IP_MULTICAST_IF, room);
        if (six) {
            Descriptors.set(descriptor, Descriptors.IPPROTO_IPV6, Descriptors.IPV6_MULTICAST_IF, index(via));
        }
    }

    private static int index(NetworkInterface via) {
        return via == null ? 0 : Math.max(0, via.getIndex());
    }
}
