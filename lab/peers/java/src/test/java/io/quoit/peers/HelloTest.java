package io.quoit.peers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.EnumSource.Mode;

/** What the HTTP server answers beside what is measured, on every transport; and what its loops tell of themselves. */
class HelloTest {
    private static final int PATIENCE_SECONDS = 60;

    private interface Check {
        void on(InetSocketAddress server) throws Exception;
    }

    private static void serving(Transport transport, Check check) throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, transport.loops());
        try {
            ServerBootstrap bootstrap = NettyPeer.bootstrap("http", transport, group);
            Channel server = bootstrap.bind(InetAddress.getLoopbackAddress(), 0).sync().channel();
            check.on((InetSocketAddress) server.localAddress());
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    private static Socket connected(InetSocketAddress server) throws IOException {
        Socket socket = new Socket(server.getAddress(), server.getPort());
        socket.setSoTimeout(PATIENCE_SECONDS * 1_000);
        return socket;
    }

    private static void ask(Socket socket, String... paths) throws IOException {
        StringBuilder requests = new StringBuilder();
        for (String path : paths) {
            requests.append("GET ").append(path).append(" HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        socket.getOutputStream().write(requests.toString().getBytes(StandardCharsets.US_ASCII));
    }

    /** Reads the head of a response, and returns the length of its body. */
    private static long head(InputStream input) throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
            int next = input.read();
            assertTrue(next >= 0, () -> "ended after " + head);
            head.append((char) next);
        }
        assertTrue(head.toString().startsWith("HTTP/1.1 200 OK\r\n"), head::toString);
        return head.toString()
                .lines()
                .filter(line -> line.startsWith("Content-Length: "))
                .mapToLong(line -> Long.parseLong(line.substring("Content-Length: ".length())))
                .sum();
    }

    private static String body(InputStream input) throws IOException {
        return new String(input.readNBytes((int) head(input)), StandardCharsets.US_ASCII);
    }

    private static void longBody(InputStream input, int length) throws IOException {
        assertEquals(length, head(input));
        byte[] bytes = new byte[length];
        new DataInputStream(input).readFully(bytes);
        for (int position = 0; position < length; position++) {
            assertEquals(position % 251, bytes[position] & 0xff);
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void pipelinedResponsesKeepTheirOrderBehindLongBodies(Transport transport) throws Exception {
        serving(transport, server -> {
            try (Socket socket = connected(server)) {
                ask(socket, "/bytes/3000000", "/healthz", "/bytes/0", "/bytes/1", "/bytes/100000", "/plaintext");
                InputStream input = socket.getInputStream();
                longBody(input, 3_000_000);
                assertEquals("ok", body(input));
                longBody(input, 0);
                longBody(input, 1);
                longBody(input, 100_000);
                assertEquals("Hello, World!", body(input));
                // It is read from again.
                ask(socket, "/json");
                assertEquals("{\"message\":\"Hello, World!\"}", body(input));
            }
        });
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void aBodyWithoutEndIsWrittenAsFastAsItIsRead(Transport transport) throws Exception {
        serving(transport, server -> {
            try (Socket endless = connected(server);
                    Socket other = connected(server)) {
                ask(endless, "/bytes/1000000000000");
                assertEquals(1_000_000_000_000L, head(endless.getInputStream()));
                // More than any queue between them holds, and others are served meanwhile.
                endless.getInputStream().skipNBytes(50_000_000);
                ask(other, "/plaintext");
                assertEquals("Hello, World!", body(other.getInputStream()));
            }
        });
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.INCLUDE, names = {"QUOIT_URING", "QUOIT_EPOLL"})
    void theLoopsTellTheirFigures(Transport transport) throws Exception {
        serving(transport, server -> {
            InetSocketAddress figures = Figures.serve(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            URI address = URI.create("http://127.0.0.1:" + figures.getPort() + "/metrics");
            try (Socket socket = connected(server);
                    HttpClient client = HttpClient.newHttpClient()) {
                ask(socket, "/healthz");
                assertEquals("ok", body(socket.getInputStream()));
                List<String> wanted = List.of(
                        "# TYPE quoit_turns counter",
                        "# TYPE quoit_connections gauge",
                        "quoit_connections{loop=\"0\"} 1",
                        "quoit_accepted_total{loop=\"0\"} 1",
                        "quoit_pool_leased{loop=\"0\"} 0",
                        "quoit_queued_bytes{loop=\"0\"} 0",
                        "quoit_send_chunks_used{loop=\"0\"} 0",
                        "# EOF");
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
                // Figures are told at the end of a turn.
                while (true) {
                    List<String> lines = client.send(HttpRequest.newBuilder(address).build(), BodyHandlers.ofLines())
                            .body()
                            .toList();
                    if (lines.containsAll(wanted)) {
                        assertTrue(lines.stream().anyMatch(line -> line.matches("quoit_turns_total\\{loop=\"0\"} [1-9]\\d*")));
                        assertTrue(lines.stream().anyMatch(line -> line.matches("quoit_in_flight\\{loop=\"0\"} \\d+")));
                        assertTrue(lines.stream()
                                .anyMatch(line -> line.matches("quoit_enters_submitting_256_total\\{loop=\"0\"} \\d+")));
                        return;
                    }
                    assertTrue(System.nanoTime() < end, () -> String.join("\n", lines));
                }
            }
        });
    }

    @Test
    void stockTransportsHaveNoFigures() {
        NettyPeer.Usage refused = assertThrows(
                NettyPeer.Usage.class,
                () -> NettyPeer.Arguments.of(new String[] {"http", "--metrics", "127.0.0.1:0", "--engine", "nio"}));
        assertEquals("--metrics: quoit-uring and quoit-epoll have figures, nio has none", refused.getMessage());
    }
}
