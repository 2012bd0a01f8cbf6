package io.quoit.netty;

import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.io.IOException;
import java.net.BindException;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;

/** The files of Unix sockets, which outlive their sockets: a process that is killed leaves its own behind. */
final class SocketFiles {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(SocketFiles.class);

    private static final int TYPE_BITS = 0xF000;
    private static final int SOCKET_TYPE = 0xC000;

    private SocketFiles() {}

    /**
     * Binds, also to a path at which a socket was that is gone. Netty's own transports remove whatever is there; here a server
     * that listens keeps its path, and a file that is no socket stays.
     */
    static void bind(int descriptor, SocketAddress address) throws IOException {
        try {
            Descriptors.bind(descriptor, address);
        } catch (BindException inUse) {
            Path file = file(address);
            if (file == null || !isSocket(file) || !Descriptors.isGone(address) || !Files.deleteIfExists(file)) {
                throw inUse;
            }
            Descriptors.bind(descriptor, address);
        }
    }

    /** Removes the file at which a client is to be bound, if it is that of a socket on which nobody listens. */
    static void removeDeaf(SocketAddress address) throws IOException {
        Path file = file(address);
        if (file != null && isSocket(file) && Descriptors.isDeaf(address)) {
            Files.deleteIfExists(file);
        }
    }

    /** Removes the file of a socket that is closed. That it cannot be removed is no failure of the close. */
    static void remove(DomainSocketAddress address) {
        Path file = file(address);
        if (file == null) {
            return;
        }
        try {
            Files.deleteIfExists(file);
        } catch (IOException failure) {
            LOGGER.debug("Quoit: the file of a closed socket stays", failure);
        }
    }

    private static Path file(SocketAddress address) {
        try {
            return Addresses.file(address);
        } catch (InvalidPathException unknown) {
            // The kernel takes any bytes; Java has names for those of the locale's character set.
            return null;
        }
    }

    private static boolean isSocket(Path file) {
        try {
            int mode = (Integer) Files.getAttribute(file, "unix:mode", LinkOption.NOFOLLOW_LINKS);
            return (mode & TYPE_BITS) == SOCKET_TYPE;
        } catch (IOException none) {
            return false;
        }
    }
}
