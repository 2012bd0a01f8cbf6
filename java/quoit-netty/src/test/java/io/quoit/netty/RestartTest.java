package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.netty.channel.ChannelException;
import io.netty.channel.EventLoopGroup;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Servers that take over from each other with the same socket, each with loops of its own as in a process of its own. */
@Timeout(120)
class RestartTest {
    private static final int CLIENTS = 16;
    private static final int RESTARTS = 4;

    @BeforeAll
    static void isOfQuoit() {
        assumeTrue(UnderTest.STOCK == null);
    }

    private static int listening() throws IOException {
        int descriptor = Descriptors.stream(Addresses.AF_INET);
        Descriptors.bind(descriptor, new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
        Descriptors.listen(descriptor, 128);
        return descriptor;
    }

    /** A client that keeps its connection until a response says that it closes, and sends nothing twice. */
    private static final class Client implements AutoCloseable {
        private final InetSocketAddress address;
        private Socket socket;
        private int connects;

        Client(InetSocketAddress address) {
            this.address = address;
        }

        void ask() throws IOException {
            if (socket == null) {
                socket = new Socket(address.getAddress(), address.getPort());
                socket.setSoTimeout(60_000);
                connects++;
            }
            socket.getOutputStream().write("GET / HTTP/1.1\r\nhost: x\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            StringBuilder response = new StringBuilder();
            InputStream input = socket.getInputStream();
            byte[] piece = new byte[1024];
            while (response.indexOf("\r\n\r\nHello, World!") < 0) {
                int length = input.read(piece);
                if (length < 0) {
                    throw new IOException("no answer, but `" + response + "`");
                }
                response.append(new String(piece, 0, length, StandardCharsets.US_ASCII));
            }
            assertTrue(response.indexOf("HTTP/1.1 200 OK\r\n") == 0, response.toString());
            if (response.indexOf("\r\nconnection: close\r\n") > 0) {
                close();
            }
        }

        @Override
        public void close() throws IOException {
            if (socket != null) {
                socket.close();
                socket = null;
            }
        }
    }

    @Test
    void restartsLoseNoRequest() throws Exception {
        int socket = listening();
        InetSocketAddress address = (InetSocketAddress) Descriptors.localAddress(socket);
        EventLoopGroup oldGroup = UnderTest.group(2);
        RestartExample old = new RestartExample(oldGroup, Descriptors.duplicate(socket));
        AtomicBoolean over = new AtomicBoolean();
        CountDownLatch begun = new CountDownLatch(CLIENTS);
        List<Future<Integer>> clients = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        try {
            for (int index = 0; index < CLIENTS; index++) {
                clients.add(threads.submit(() -> {
                    try (Client client = new Client(address)) {
                        client.ask();
                        begun.countDown();
                        while (!over.get()) {
                            client.ask();
                        }
                        return client.connects;
                    } finally {
                        begun.countDown();
                    }
                }));
            }
            begun.await();
            for (int restart = 0; restart < RESTARTS; restart++) {
                EventLoopGroup nextGroup = UnderTest.group(2);
                RestartExample next = new RestartExample(nextGroup, Descriptors.duplicate(socket));
                // When each of its connections was told.
                old.end(1, TimeUnit.HOURS);
                oldGroup.shutdownGracefully(0, 60, TimeUnit.SECONDS).sync();
                old = next;
                oldGroup = nextGroup;
            }
        } finally {
            over.set(true);
            threads.shutdown();
        }
        for (Future<Integer> client : clients) {
            assertTrue(client.get() > 1, "it met no restart");
        }
        old.end(1, TimeUnit.HOURS);
        oldGroup.shutdownGracefully(0, 60, TimeUnit.SECONDS).sync();
        Descriptors.close(socket);
    }

    /** Connections that came before are served, whatever their number, and the socket stays open for others. */
    @Test
    void whoWasAcceptedIsServedAndTheSocketStaysOpen() throws Exception {
        int socket = listening();
        InetSocketAddress address = (InetSocketAddress) Descriptors.localAddress(socket);
        EventLoopGroup group = UnderTest.group(2);
        for (int round = 0; round < 2; round++) {
            RestartExample server = new RestartExample(group, Descriptors.duplicate(socket));
            List<Client> clients = new ArrayList<>();
            for (int index = 0; index < 100; index++) {
                Client client = new Client(address);
                client.socket = new Socket(address.getAddress(), address.getPort());
                client.socket.setSoTimeout(60_000);
                clients.add(client);
            }
            Thread end = new Thread(() -> server.end(1, TimeUnit.HOURS));
            end.start();
            for (Client client : clients) {
                client.ask();
                client.close();
            }
            end.join();
        }
        group.shutdownGracefully(0, 60, TimeUnit.SECONDS).sync();
        Descriptors.close(socket);
    }

    @Test
    void aDescriptorThatDoesNotListenIsRefusedAndClosed() throws Exception {
        int plain = Descriptors.stream(Addresses.AF_INET);
        ChannelException wrong = assertThrows(ChannelException.class, () -> new QuoitServerSocketChannel(plain));
        assertEquals("descriptor " + plain + " is no listening socket", wrong.getMessage());
        assertEquals("the socket does not listen", wrong.getCause().getMessage());
        ChannelException closed = assertThrows(ChannelException.class, () -> new QuoitServerDomainSocketChannel(plain));
        assertTrue(closed.getCause().getCause() instanceof IOException, closed.getCause().toString());
    }
}
