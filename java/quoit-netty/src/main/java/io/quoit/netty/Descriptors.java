package io.quoit.netty;

import io.netty.channel.ChannelException;
import io.netty.util.concurrent.FastThreadLocal;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Sockets as plain descriptors: made, named and given options by any thread. Nothing here is done per message. */
final class Descriptors {
    static final int SOL_SOCKET = 1;
    static final int SO_REUSEADDR = 2;
    static final int SO_BROADCAST = 6;
    static final int SO_SNDBUF = 7;
    static final int SO_RCVBUF = 8;
    static final int SO_KEEPALIVE = 9;
    static final int SO_REUSEPORT = 15;
    static final int SO_PEERCRED = 17;
    static final int SO_PEERNAME = 28;
    static final int SO_ACCEPTCONN = 30;
    static final int SO_BUSY_POLL = 46;

    static final int IPPROTO_IP = 0;
    static final int IP_TOS = 1;
    static final int IP_FREEBIND = 15;
    static final int IP_TRANSPARENT = 19;
    static final int IP_BIND_ADDRESS_NO_PORT = 24;
    static final int IP_MULTICAST_IF = 32;
    static final int IP_MULTICAST_TTL = 33;
    static final int IP_MULTICAST_LOOP = 34;
    static final int IP_MULTICAST_ALL = 49;

    static final int IPPROTO_IPV6 = 41;
    static final int IPV6_MULTICAST_IF = 17;
    static final int IPV6_MULTICAST_HOPS = 18;
    static final int IPV6_MULTICAST_LOOP = 19;
    static final int IPV6_V6ONLY = 26;
    static final int IPV6_MULTICAST_ALL = 29;
    static final int IPV6_TCLASS = 67;

    static final int IPPROTO_TCP = 6;
    static final int TCP_NODELAY = 1;
    static final int TCP_CORK = 3;
    static final int TCP_KEEPIDLE = 4;
    static final int TCP_KEEPINTVL = 5;
    static final int TCP_KEEPCNT = 6;
    static final int TCP_DEFER_ACCEPT = 9;
    static final int TCP_INFO = 11;
    static final int TCP_QUICKACK = 12;
    static final int TCP_USER_TIMEOUT = 18;
    static final int TCP_FASTOPEN = 23;
    static final int TCP_NOTSENT_LOWAT = 25;

    static final int SHUT_RD = 0;
    static final int SHUT_RDWR = 2;

    private static final int SOCK_STREAM = 1;
    private static final int SOCK_DGRAM = 2;
    private static final int SOCK_NONBLOCK = 0x800;
    private static final int SOCK_CLOEXEC = 0x80000;

    private static final FastThreadLocal<ByteBuffer> ROOM = new FastThreadLocal<>() {
        @Override
        protected ByteBuffer initialValue() {
            return ByteBuffer.allocateDirect(8 + Math.max(Addresses.BYTES, QuoitTcpInfo.BYTES)).order(ByteOrder.nativeOrder());
        }
    };

    private Descriptors() {}

    private static NativeLibrary library() {
        return NativeLoader.library();
    }

    /**
     * Memory of the calling thread for one call. Not made for each: each accepted connection makes some, and what a direct
     * buffer holds is given back only by a garbage collection, of which a server that makes no garbage has few.
     */
    private static ByteBuffer room() {
        return ROOM.get();
    }

    /** A stream socket that does not block. */
    static int stream(int family) throws IOException {
        return checked("socket", library().socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC));
    }

    /** A datagram socket that does not block; one of IPv6 takes IPv4 as well. */
    static int datagram(int family) throws IOException {
        int made = checked("socket", library().socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (family == Addresses.AF_INET6) {
            set(made, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        }
        return made;
    }

    /** Connects a datagram socket, which is done at once. */
    static void connectDatagram(int descriptor, SocketAddress address) throws IOException {
        ByteBuffer room = room();
        connectRaw(descriptor, room, Addresses.write(address, room));
    }

    /** Ends the connection of a datagram socket. */
    static void disconnectDatagram(int descriptor) throws IOException {
        ByteBuffer room = room();
        connectRaw(descriptor, room.putShort(0, (short) Addresses.AF_UNSPEC), Addresses.INET_BYTES);
    }

    private static void connectRaw(int descriptor, ByteBuffer address, int length) throws IOException {
        int result = library().connect(descriptor, library().address(address), length);
        java.lang.ref.Reference.reachabilityFence(address);
        checked("connect", result);
    }

    static void bind(int descriptor, SocketAddress address) throws IOException {
        ByteBuffer room = room();
        int length = Addresses.write(address, room);
        int result = library().bind(descriptor, library().address(room), length);
        java.lang.ref.Reference.reachabilityFence(room);
        if (result < 0) {
            IOException failure = Errno.exception("bind", result);
            throw (IOException) new java.net.BindException(failure.getMessage() + ": " + address).initCause(failure);
        }
    }

    /**
     * Whether no socket is at a Unix address any more. Asked by one for datagrams, which a stream socket that lives is the wrong
     * type for: its server sees no connection of this.
     */
    static boolean isGone(SocketAddress unixAddress) throws IOException {
        return refuses(datagram(Addresses.AF_UNIX), unixAddress);
    }

    /** Whether nobody listens at a Unix address, as where a closed client has yet to send. A server that does sees a connection. */
    static boolean isDeaf(SocketAddress unixAddress) throws IOException {
        return refuses(stream(Addresses.AF_UNIX), unixAddress);
    }

    private static boolean refuses(int made, SocketAddress unixAddress) {
        try {
            ByteBuffer room = room();
            int result = library().connect(made, library().address(room), Addresses.write(unixAddress, room));
            return result == -Errno.ECONNREFUSED;
        } finally {
            close(made);
        }
    }

    static void listen(int descriptor, int backlog) throws IOException {
        checked("listen", library().listenOn(descriptor, backlog));
    }

    static int duplicate(int descriptor) throws IOException {
        return checked("fcntl", library().duplicate(descriptor));
    }

    static void close(int descriptor) {
        // Nothing can be done about a failure, and Linux has closed it in any case.
        library().close(descriptor);
    }

    static void shutdown(int descriptor, int how) throws IOException {
        checked("shutdown", library().shutdown(descriptor, how));
    }

    /** The socket's own address; null if it has none. */
    static SocketAddress localAddress(int descriptor) {
        return name(descriptor, false);
    }

    /** The peer's address, also of one that has reset the connection; null if there is none. */
    static SocketAddress remoteAddress(int descriptor) {
        SocketAddress found = name(descriptor, true);
        return found != null ? found : formerPeer(descriptor);
    }

    /**
     * The address of a peer that has reset its connection, which {@code accept4(2)} would have told, and {@code getpeername(2)}
     * does not. {@code SO_PEERNAME} does, to who asks for the exact length.
     */
    private static SocketAddress formerPeer(int descriptor) {
        ByteBuffer room = room();
        long at = library().address(room);
        for (int length : new int[] {Addresses.INET6_BYTES, Addresses.INET_BYTES}) {
            room.putInt(0, length);
            if (library().getOption(descriptor, SOL_SOCKET, SO_PEERNAME, at + 8, at) >= 0) {
                return Addresses.read(room.slice(8, Addresses.BYTES), length);
            }
        }
        return null;
    }

    private static SocketAddress name(int descriptor, boolean peer) {
        ByteBuffer room = room().putInt(0, Addresses.BYTES);
        long at = library().address(room);
        int result = peer ? library().peerName(descriptor, at + 8, at) : library().socketName(descriptor, at + 8, at);
        return result < 0 ? null : Addresses.read(room.slice(8, Addresses.BYTES), room.getInt(0));
    }

    static void set(int descriptor, int level, int name, int value) {
        set(descriptor, level, name, room().putInt(0, value), Integer.BYTES);
    }

    /** Sets an option that is a structure: all of a direct buffer. */
    static void set(int descriptor, int level, int name, ByteBuffer room) {
        set(descriptor, level, name, room, room.capacity());
    }

    private static void set(int descriptor, int level, int name, ByteBuffer room, int length) {
        int result = library().setOption(descriptor, level, name, library().address(room), length);
        java.lang.ref.Reference.reachabilityFence(room);
        if (result < 0) {
            throw new ChannelException(Errno.exception("setsockopt", result));
        }
    }

    static int get(int descriptor, int level, int name) {
        ByteBuffer room = room().putInt(0, 0).putInt(Integer.BYTES, Integer.BYTES);
        long at = library().address(room);
        int result = library().getOption(descriptor, level, name, at, at + Integer.BYTES);
        int value = room.getInt(0);
        if (result < 0) {
            throw new ChannelException(Errno.exception("getsockopt", result));
        }
        return value;
    }

    /** An option that is a structure of so many bytes: the calling thread's, until its next call. */
    static ByteBuffer read(int descriptor, int level, int name, int bytes) throws IOException {
        ByteBuffer room = room().putInt(0, bytes);
        long at = library().address(room);
        checked("getsockopt", library().getOption(descriptor, level, name, at + 8, at));
        if (room.getInt(0) < bytes) {
            throw new IOException("getsockopt: " + room.getInt(0) + " bytes where there should be " + bytes);
        }
        return room.slice(8, bytes).order(ByteOrder.nativeOrder());
    }

    private static int checked(String call, int result) throws IOException {
        if (result < 0) {
            throw Errno.exception(call, result);
        }
        return result;
    }
}
