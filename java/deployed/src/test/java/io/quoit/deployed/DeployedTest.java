package io.quoit.deployed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ConnectException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** It is started as the chart of {@code deploy/kubernetes} starts it, and taken down as the kubelet does it. */
class DeployedTest {
    /** Only what hangs takes so long. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private static Process start(String... arguments) throws IOException {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        ProcessBuilder builder = new ProcessBuilder(java);
        if (Runtime.version().feature() >= 22) {
            builder.command().add("--enable-native-access=ALL-UNNAMED");
        }
        builder.command().addAll(List.of("-cp", classes, Deployed.class.getName()));
        builder.command().addAll(List.of(arguments));
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    private static Socket connect(String address) throws IOException {
        int colon = address.lastIndexOf(':');
        Socket socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
        socket.setSoTimeout((int) PATIENCE.toMillis());
        return socket;
    }

    private static void send(Socket socket, String text) throws IOException {
        socket.getOutputStream().write(text.getBytes(StandardCharsets.US_ASCII));
    }

    /** What comes until the server ends it. */
    private static String rest(Socket socket) throws IOException {
        return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }

    private static String probe(String metrics, String path) throws IOException {
        try (Socket socket = connect(metrics)) {
            send(socket, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            return rest(socket);
        }
    }

    private static void says(String metrics, String path, String status, String text) throws IOException {
        String response = probe(metrics, path);
        assertTrue(response.startsWith("HTTP/1.1 " + status), response);
        assertTrue(response.endsWith("\r\n\r\n" + text), response);
    }

    @ParameterizedTest
    @ValueSource(strings = {"auto", "epoll"})
    @Timeout(120)
    void a_pod_that_is_taken_down_is_not_ready_and_finishes_what_it_has(String engine) throws Exception {
        Process process = start(
                "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--engine=" + engine, "--loops=2", "--connections=64", "--drain=60");
        try (BufferedReader output = process.inputReader()) {
            String listening = output.readLine().replace("listening on ", "");
            String metrics = output.readLine().replace("metrics on ", "");
            says(metrics, "/readyz", "200", "ok");
            says(metrics, "/livez", "200", "ok");
            String figures = probe(metrics, "/metrics");
            assertTrue(figures.contains("\nquoit_turns_total{loop=\""), figures);
            try (Socket idle = connect(listening);
                    Socket busy = connect(listening)) {
                // Together, so that the head of the second is there with the response to the first.
                send(
                        busy,
                        "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
                                + "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
                BufferedReader reader = new BufferedReader(new InputStreamReader(busy.getInputStream(), StandardCharsets.US_ASCII));
                assertEquals("HTTP/1.1 200 OK", reader.readLine());
                while (!reader.readLine().isEmpty()) {}
                char[] body = new char["Hello, World!".length()];
                for (int at = 0; at < body.length; at++) {
                    body[at] = (char) reader.read();
                }
                assertEquals("Hello, World!", new String(body));
                process.toHandle().destroy();
                assertEquals("", rest(idle));
                while (true) {
                    try (Socket late = connect(listening)) {
                        assertTrue(process.isAlive(), "it has ended too early");
                    } catch (ConnectException refused) {
                        break;
                    }
                }
                says(metrics, "/readyz", "503", "draining");
                says(metrics, "/livez", "200", "ok");
                send(busy, "cd");
                assertEquals("HTTP/1.1 200 OK", reader.readLine());
                StringBuilder last = new StringBuilder();
                for (int read = reader.read(); read >= 0; read = reader.read()) {
                    last.append((char) read);
                }
                assertTrue(last.toString().contains("connection: close\r\n"), last.toString());
                assertTrue(last.toString().endsWith("\r\n\r\nHello, World!"), last.toString());
            }
            assertTrue(process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS), "it does not end");
            assertEquals(0, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }

    @Test
    @Timeout(60)
    void what_it_does_not_know_is_one_line() throws Exception {
        Process process = start("--port=80");
        assertEquals(2, process.waitFor());
    }
}
