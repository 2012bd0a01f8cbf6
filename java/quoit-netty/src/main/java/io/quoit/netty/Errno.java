package io.quoit.netty;

import io.netty.channel.ConnectTimeoutException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.BindException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.PortUnreachableException;
import java.net.SocketException;
import java.nio.channels.ClosedChannelException;

/** Error numbers of Linux, and the exceptions that Netty's users expect for them. */
final class Errno {
    static final int EACCES = 13;
    static final int EINVAL = 22;
    private static final int ENOSPC = 28;
    static final int EADDRINUSE = 98;
    static final int EADDRNOTAVAIL = 99;

    /** Of no call, and above all of the kernel's: the library has no room for another connection. */
    static final int LOOP_IS_FULL = 4096;

    private static final int EPERM = 1;
    private static final int ENOENT = 2;
    private static final int EBADF = 9;
    private static final int EAGAIN = 11;
    private static final int ENOMEM = 12;
    private static final int ENODEV = 19;
    private static final int ENOTDIR = 20;
    private static final int ENFILE = 23;
    static final int EMFILE = 24;
    private static final int EROFS = 30;
    private static final int EPIPE = 32;
    private static final int ENAMETOOLONG = 36;
    private static final int ELOOP = 40;
    private static final int EPROTO = 71;
    private static final int ENOTSOCK = 88;
    private static final int EMSGSIZE = 90;
    private static final int EPROTOTYPE = 91;
    private static final int EPROTONOSUPPORT = 93;
    private static final int EOPNOTSUPP = 95;
    private static final int EAFNOSUPPORT = 97;
    private static final int ENETDOWN = 100;
    private static final int ENETUNREACH = 101;
    private static final int ECONNABORTED = 103;
    private static final int ECONNRESET = 104;
    private static final int ENOPROTOOPT = 92;
    private static final int ENOBUFS = 105;
    private static final int ENOTCONN = 107;
    private static final int ETIMEDOUT = 110;
    static final int ECONNREFUSED = 111;
    private static final int EHOSTDOWN = 112;
    private static final int EHOSTUNREACH = 113;

    private Errno() {}

    /** What a (positive or negative) number means. */
    static String text(int errno) {
        int number = Math.abs(errno);
        return switch (number) {
            case EPERM -> "Operation not permitted";
            case ENOENT -> "No such file or directory";
            case EBADF -> "Bad file descriptor";
            case EAGAIN -> "Resource temporarily unavailable";
            case ENOMEM -> "Cannot allocate memory";
            case EACCES -> "Permission denied";
            case EINVAL -> "Invalid argument";
            case ENODEV -> "No such device";
            case ENOTDIR -> "Not a directory";
            case ENFILE -> "Too many open files in system";
            case EMFILE -> "Too many open files";
            case ENOSPC -> "No space left on device";
            case EROFS -> "Read-only file system";
            case EPIPE -> "Broken pipe";
            case ENAMETOOLONG -> "File name too long";
            case ELOOP -> "Too many levels of symbolic links";
            case EPROTO -> "Protocol error";
            case ENOTSOCK -> "Socket operation on non-socket";
            case EMSGSIZE -> "Message too long";
            case ENOPROTOOPT -> "Protocol not available";
            case EPROTOTYPE -> "Protocol wrong type for socket";
            case EPROTONOSUPPORT -> "Protocol not supported";
            case EOPNOTSUPP -> "Operation not supported";
            case EAFNOSUPPORT -> "Address family not supported by protocol";
            case EADDRINUSE -> "Address already in use";
            case EADDRNOTAVAIL -> "Cannot assign requested address";
            case ENETDOWN -> "Network is down";
            case ENETUNREACH -> "Network is unreachable";
            case ECONNABORTED -> "Software caused connection abort";
            case ECONNRESET -> "Connection reset by peer";
            case ENOBUFS -> "No buffer space available";
            case ENOTCONN -> "Transport endpoint is not connected";
            case ETIMEDOUT -> "Connection timed out";
            case ECONNREFUSED -> "Connection refused";
            case EHOSTDOWN -> "Host is down";
            case EHOSTUNREACH -> "No route to host";
            case LOOP_IS_FULL -> "the loop has as many connections as it may have (QuoitIoHandlerConfig.withConnections)";
            default -> "errno " + number;
        };
    }

    /** The exception for a system call that failed. */
    static IOException exception(String call, int errno) {
        String text = call + "(..) failed: " + text(errno);
        return switch (Math.abs(errno)) {
            case EADDRINUSE, EADDRNOTAVAIL, EACCES -> new BindException(text);
            case ECONNREFUSED -> new ConnectException(text);
            case ENETUNREACH, EHOSTUNREACH -> new NoRouteToHostException(text);
            default -> new SocketException(text);
        };
    }

    /** Why a datagram was not sent, or did not arrive. */
    static IOException datagramFailure(int error) {
        return switch (Math.abs(error)) {
            case ECONNREFUSED -> new PortUnreachableException(text(error));
            case ENETUNREACH, EHOSTUNREACH -> new NoRouteToHostException(text(error));
            default -> new SocketException(text(error));
        };
    }

    /** Why the library refused a datagram. */
    static IOException datagramRefusal(int reason, int error) {
        return switch (reason) {
            case Abi.REFUSED_ERROR -> datagramFailure(error);
            case Abi.REFUSED_STALE, Abi.REFUSED_CLOSING -> new ClosedChannelException();
            case Abi.REFUSED_TOO_LARGE -> datagramFailure(EMSGSIZE);
            default -> new SocketException("the queue of the socket is full");
        };
    }

    /** Why an attempt to connect failed. */
    static IOException connectFailure(int reason, int error, Object remote) {
        if (reason == Abi.CLOSED_TIMEOUT) {
            return new ConnectTimeoutException("connection timed out: " + remote);
        }
        if (reason == Abi.CLOSED_LOCAL || reason == Abi.CLOSED_PEER) {
            return new ClosedChannelException();
        }
        int errno = error == 0 && reason == Abi.CLOSED_RESET ? ECONNRESET : error;
        return switch (Math.abs(errno)) {
            case ENETUNREACH, EHOSTUNREACH -> new NoRouteToHostException(text(errno));
            case EADDRINUSE, EADDRNOTAVAIL -> new BindException(text(errno));
            // The path of a Unix socket.
            case ENOENT -> new FileNotFoundException(text(errno));
            default -> new ConnectException(text(errno));
        };
    }

    /** Why a connection ended; null if both ends agreed to. */
    static IOException closeCause(int reason, int error) {
        return switch (reason) {
            case Abi.CLOSED_LOCAL, Abi.CLOSED_PEER -> null;
            case Abi.CLOSED_RESET -> new SocketException("Connection reset by peer");
            case Abi.CLOSED_TIMEOUT -> new SocketException("Connection timed out");
            case Abi.CLOSED_LIMIT ->
                new SocketException("Connection closed: its peer took nothing while the loop's memory was short");
            default -> new SocketException(text(error));
        };
    }
}
