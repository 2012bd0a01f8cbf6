package io.quoit.netty;

import io.netty.channel.unix.DomainSocketAddress;
import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** Socket addresses of Java, of the kernel ({@code struct sockaddr}) and of libquoit (texts). */
final class Addresses {
    static final int AF_UNSPEC = 0;
    static final int AF_UNIX = 1;
    static final int AF_INET = 2;
    static final int AF_INET6 = 10;

    /** Bytes of the largest one, {@code struct sockaddr_un}. */
    static final int BYTES = 110;

    private static final int UNIX_NAME_BYTES = 108;
    static final int INET_BYTES = 16;
    static final int INET6_BYTES = 28;

    private Addresses() {}

    /** Whether sockets of both families may be had; without IPv6 the wildcard is that of IPv4. */
    static int family(SocketAddress address) {
        if (address instanceof InetSocketAddress inet) {
            return inet.getAddress() instanceof Inet6Address ? AF_INET6 : AF_INET;
        }
        return AF_UNIX;
    }

    /**
     * Writes an address as the kernel reads it, and returns its length.
     *
     * @throws IllegalArgumentException if it is of no kind that this transport has, or too long
     */
    static int write(SocketAddress address, ByteBuffer to) {
        to.clear().order(ByteOrder.nativeOrder());
        if (address instanceof InetSocketAddress inet) {
            return write(inet, to, 0);
        }
        byte[] name = unixName(address).getBytes(StandardCharsets.UTF_8);
        if (name.length == 0 || name.length >= UNIX_NAME_BYTES) {
            throw new IllegalArgumentException(
                    "a Unix socket's path has 1 to " + (UNIX_NAME_BYTES - 1) + " bytes; this one has " + name.length);
        }
        to.putShort(0, (short) AF_UNIX).put(2, name).put(2 + name.length, (byte) 0);
        return 2 + name.length + (name[0] == 0 ? 0 : 1);
    }

    /** Writes an IP address at a place of a buffer in native order, and returns its length, at most {@link #INET6_BYTES}. */
    static int write(InetSocketAddress inet, ByteBuffer to, int at) {
        InetAddress ip = inet.getAddress();
        int port = inet.getPort();
        to.putShort(at, (short) family(inet)).put(at + 2, (byte) (port >>> 8)).put(at + 3, (byte) port);
        if (ip instanceof Inet6Address six) {
            to.putInt(at + 4, 0).put(at + 8, six.getAddress()).putInt(at + 24, six.getScopeId());
            return INET6_BYTES;
        }
        to.put(at + 4, ip.getAddress()).putLong(at + 8, 0);
        return INET_BYTES;
    }

    /**
     * An IP address as a socket of a family is given it: to one of IPv6, addresses of IPv4 are mapped ones; the wildcard is
     * that of the family.
     */
    static InetSocketAddress of(int family, InetSocketAddress address) {
        InetAddress ip = address.getAddress();
        boolean six = family == AF_INET6;
        if (six == ip instanceof Inet6Address || !six && !ip.isAnyLocalAddress()) {
            return address;
        }
        byte[] bytes = new byte[six ? 16 : 4];
        if (six && !ip.isAnyLocalAddress()) {
            bytes[10] = (byte) 0xFF;
            bytes[11] = (byte) 0xFF;
            System.arraycopy(ip.getAddress(), 0, bytes, 12, 4);
        }
        try {
            // InetAddress.getByAddress would make an IPv4 address of a mapped one.
            InetAddress fitting = six ? Inet6Address.getByAddress(null, bytes, -1) : InetAddress.getByAddress(bytes);
            return new InetSocketAddress(fitting, address.getPort());
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException("an address of 4 or 16 bytes is one", impossible);
        }
    }

    /**
     * Reads an address as the kernel wrote it; null for one of another family. A Unix socket without a name has an empty path,
     * as with Netty's own transports.
     */
    static SocketAddress read(ByteBuffer from, int length) {
        if (length < 2) {
            return null;
        }
        int family = from.order(ByteOrder.nativeOrder()).getShort(0);
        int port = (from.get(2) & 0xFF) << 8 | from.get(3) & 0xFF;
        try {
            if (family == AF_INET) {
                byte[] ip = new byte[4];
                from.get(4, ip);
                return new InetSocketAddress(InetAddress.getByAddress(ip), port);
            }
            if (family == AF_INET6) {
                byte[] ip = new byte[16];
                from.get(8, ip);
                InetAddress any = InetAddress.getByAddress(ip);
                int scope = from.getInt(24);
                boolean scoped = scope != 0 && any instanceof Inet6Address;
                return new InetSocketAddress(scoped ? Inet6Address.getByAddress(null, ip, scope) : any, port);
            }
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException("an address of 4 or 16 bytes is one", impossible);
        }
        if (family != AF_UNIX) {
            return null;
        }
        int end = 2;
        // An abstract name begins with a NUL and may hold others; a path ends at the first.
        while (end < length && (from.get(2) == 0 || from.get(end) != 0)) {
            end++;
        }
        byte[] name = new byte[end - 2];
        from.get(2, name);
        return new DomainSocketAddress(new String(name, StandardCharsets.UTF_8));
    }

    /** An address as libquoit reads it. */
    static String text(SocketAddress address) {
        if (address instanceof InetSocketAddress inet) {
            InetAddress ip = inet.getAddress();
            String host = ip.getHostAddress();
            if (ip instanceof Inet4Address) {
                return host + ":" + inet.getPort();
            }
            int scope = ((Inet6Address) ip).getScopeId();
            int percent = host.indexOf('%');
            String plain = percent < 0 ? host : host.substring(0, percent);
            return "[" + plain + (scope == 0 ? "" : "%" + scope) + "]:" + inet.getPort();
        }
        String name = unixName(address);
        boolean named = name.startsWith("\0");
        StringBuilder text = new StringBuilder(named ? "unix:@" : "unix:");
        for (int at = named ? 1 : 0; at < name.length(); at++) {
            switch (name.charAt(at)) {
                // It begins an escape.
                case '\\' -> text.append("\\\\");
                // An abstract name's, where it comes first.
                case '@' -> text.append("\\x40");
                default -> text.append(name.charAt(at));
            }
        }
        return text.toString();
    }

    static boolean isUnix(SocketAddress address) {
        return address instanceof DomainSocketAddress || address instanceof java.net.UnixDomainSocketAddress;
    }

    private static String unixName(SocketAddress address) {
        if (address instanceof DomainSocketAddress unix) {
            return unix.path();
        }
        if (address instanceof java.net.UnixDomainSocketAddress unix) {
            return unix.getPath().toString();
        }
        throw new IllegalArgumentException(address + " is not an address of an IP or Unix socket");
    }

    /** The file of a Unix socket; null for an abstract name or none, and for other sockets. */
    static Path file(SocketAddress address) {
        String name = isUnix(address) ? unixName(address) : "";
        return name.isEmpty() || name.startsWith("\0") ? null : Path.of(name);
    }
}
