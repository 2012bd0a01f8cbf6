package io.quoit.netty;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/**
 * An address on loopback to which a connect is neither answered nor refused: its listener accepts nobody, and its queue is
 * full, so that Linux drops what else wants to connect ({@code tcp_conn_request} in net/ipv4/tcp_input.c).
 */
final class SilentListener {
    /** {@code listen(2)} with a backlog of 1 queues one more. */
    private static final int QUEUED = 2;

    private static final ServerSocket LISTENER;
    /** Nobody else has them, and a collected socket is closed, which would make room in the queue. */
    private static final List<Socket> IN_QUEUE = new ArrayList<>();

    static {
        try {
            LISTENER = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
            for (int i = 0; i < QUEUED; i++) {
                IN_QUEUE.add(new Socket(LISTENER.getInetAddress(), LISTENER.getLocalPort()));
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private SilentListener() {}

    static InetSocketAddress address() {
        return (InetSocketAddress) LISTENER.getLocalSocketAddress();
    }
}
