package io.quoit.doors;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quoit.vertx.QuoitVertxTransport;
import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.VertxBuilder;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientOptions;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServer;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.PoolOptions;
import io.vertx.core.http.WebSocket;
import io.vertx.core.http.WebSocketClient;
import io.vertx.core.http.WebSocketClientOptions;
import io.vertx.core.net.NetClient;
import io.vertx.core.net.NetServer;
import io.vertx.core.net.NetSocket;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Vert.x: its HTTP server and client, WebSockets, and plain connections. */
class VertxTest {
    private static final String HOST = "127.0.0.1";
    private static final int PATIENCE_SECONDS = 120;
    private static final int REQUESTS = 300;
    private static final int MUCH = 8 << 20;

    private Vertx vertx;

    private void start(Transport transport) {
        VertxOptions options = new VertxOptions().setEventLoopPoolSize(2);
        VertxBuilder builder = Vertx.builder();
        if (transport == Transport.STOCK) {
            builder.with(options.setPreferNativeTransport(true));
        } else {
            builder.with(options).withTransport(new QuoitVertxTransport(transport.config()));
        }
        vertx = builder.build();
        assertTrue(vertx.isNativeTransportEnabled(), () -> "Vert.x fell back: " + vertx.unavailableNativeTransportCause());
    }

    @AfterEach
    void end() throws Exception {
        await(vertx.close());
    }

    private static <T> T await(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    private static <T> T next(BlockingQueue<T> queue) throws InterruptedException {
        T next = queue.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (next == null) {
            throw new AssertionError("nothing came");
        }
        return next;
    }

    private static Buffer bytes(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return Buffer.buffer(bytes);
    }

    /** Tells the first byte that differs. */
    private static void assertBytes(Buffer expected, Buffer actual) {
        assertArrayEquals(expected.getBytes(), actual.getBytes());
    }

    private Future<Buffer> send(HttpClient client, HttpServer server, HttpMethod method, String path, Buffer body) {
        return client.request(method, server.actualPort(), HOST, path)
                .compose(request -> request.send(body).compose(HttpClientResponse::body));
    }

    /** Many requests, over few connections: some pipelined, and bodies of all sizes, both ways. */
    @ParameterizedTest
    @EnumSource
    void httpRequestsWithBodies(Transport transport) throws Exception {
        start(transport);
        HttpServer server = await(vertx.createHttpServer()
                .requestHandler(request -> request.body().onSuccess(body -> request.response().end(body)))
                .listen(0, HOST));
        for (boolean pipelining : new boolean[] {false, true}) {
            HttpClient client = vertx.createHttpClient(
                    new HttpClientOptions().setPipelining(pipelining), new PoolOptions().setHttp1MaxSize(3));
            List<Future<Buffer>> answers = new ArrayList<>();
            for (int request = 0; request < REQUESTS; request++) {
                answers.add(send(client, server, HttpMethod.POST, "/", bytes(request * request)));
            }
            for (int request = 0; request < REQUESTS; request++) {
                assertBytes(bytes(request * request), await(answers.get(request)));
            }
            await(client.close());
        }
    }

    /** A chunked body is sent back as it comes, with back-pressure; and a file is sent, whole and in part. */
    @ParameterizedTest
    @EnumSource
    void httpStreamsAndFiles(Transport transport, @TempDir Path folder) throws Exception {
        start(transport);
        Buffer content = bytes(MUCH);
        Path file = Files.write(folder.resolve("file"), content.getBytes());
        HttpServer server = await(vertx.createHttpServer(new HttpServerOptions())
                .requestHandler(request -> {
                    switch (request.path()) {
                        case "/stream" -> request.pipeTo(request.response().setChunked(true));
                        case "/file" -> request.response().sendFile(file.toString());
                        case "/part" -> request.response().sendFile(file.toString(), 1000, 5000);
                        default -> request.response().reset();
                    }
                })
                .listen(0, HOST));
        HttpClient client = vertx.createHttpClient();
        assertBytes(content, await(send(client, server, HttpMethod.POST, "/stream", content)));
        assertBytes(content, await(send(client, server, HttpMethod.GET, "/file", Buffer.buffer())));
        assertBytes(
                content.getBuffer(1000, 6000), await(send(client, server, HttpMethod.GET, "/part", Buffer.buffer())));
        Throwable failure = await(send(client, server, HttpMethod.GET, "/reset", Buffer.buffer())
                .map((Throwable) null)
                .otherwise(cause -> cause));
        assertEquals("HttpClosedException", failure.getClass().getSimpleName());
        await(client.close());
    }

    /** Messages of all sizes come back in order, pings are answered, and the reason of the end is told at the other. */
    @ParameterizedTest
    @EnumSource
    void webSockets(Transport transport) throws Exception {
        start(transport);
        Promise<String> ended = Promise.promise();
        HttpServer server = await(vertx.createHttpServer(new HttpServerOptions().setMaxWebSocketMessageSize(2 * MUCH))
                .webSocketHandler(socket -> {
                    socket.textMessageHandler(socket::writeTextMessage);
                    socket.binaryMessageHandler(socket::writeBinaryMessage);
                    socket.closeHandler(closed -> ended.complete(socket.closeStatusCode() + " " + socket.closeReason()));
                })
                .listen(0, HOST));
        WebSocketClient client =
                vertx.createWebSocketClient(new WebSocketClientOptions().setMaxMessageSize(2 * MUCH));
        BlockingQueue<Object> messages = new LinkedBlockingQueue<>();
        WebSocket socket = await(client.connect(server.actualPort(), HOST, "/").onSuccess(connected -> connected
                .textMessageHandler(messages::add)
                .binaryMessageHandler(messages::add)
                .pongHandler(messages::add)));
        for (int message = 0; message < REQUESTS; message++) {
            socket.writeTextMessage("t".repeat(message));
            socket.writeBinaryMessage(bytes(message * message));
        }
        for (int message = 0; message < REQUESTS; message++) {
            assertEquals("t".repeat(message), next(messages));
            assertBytes(bytes(message * message), (Buffer) next(messages));
        }
        socket.writeBinaryMessage(bytes(MUCH));
        assertBytes(bytes(MUCH), (Buffer) next(messages));
        socket.writePing(Buffer.buffer("ping"));
        assertEquals(Buffer.buffer("ping"), next(messages));
        await(socket.close((short) 4000, "enough"));
        assertEquals("4000 enough", await(ended.future()));
        await(client.close());
    }

    /** Much is sent back with back-pressure; then an end is told as an end, and a reset as an exception. */
    @ParameterizedTest
    @EnumSource
    void plainConnections(Transport transport) throws Exception {
        start(transport);
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        NetServer piping = await(vertx.createNetServer()
                .connectHandler(socket -> {
                    socket.closeHandler(closed -> told.add("closed"));
                    socket.pipeTo(socket);
                })
                .listen(0, HOST));
        NetServer echoing = await(vertx.createNetServer()
                .connectHandler(socket -> {
                    socket.exceptionHandler(failure -> told.add("exception"));
                    socket.closeHandler(closed -> told.add("closed"));
                    socket.handler(socket::write);
                })
                .listen(0, HOST));
        NetClient client = vertx.createNetClient();
        Buffer received = Buffer.buffer();
        Promise<Void> all = Promise.promise();
        NetSocket socket = await(client.connect(piping.actualPort(), HOST).onSuccess(connected -> connected.handler(part -> {
            received.appendBuffer(part);
            if (received.length() == MUCH) {
                all.complete();
            }
        })));
        await(socket.write(bytes(MUCH)));
        await(all.future());
        assertBytes(bytes(MUCH), received);
        await(socket.close());
        assertEquals("closed", next(told));
        try (Socket plain = new Socket()) {
            plain.connect(new InetSocketAddress(HOST, echoing.actualPort()));
            plain.getOutputStream().write(1);
            assertEquals(1, plain.getInputStream().read());
            plain.setSoLinger(true, 0);
        }
        assertEquals("exception", next(told));
        assertEquals("closed", next(told));
        int port = echoing.actualPort();
        await(echoing.close());
        Throwable refused = await(client.connect(port, HOST)
                .map((Throwable) null)
                .otherwise(cause -> cause));
        assertEquals("AnnotatedConnectException", refused.getClass().getSimpleName());
    }
}
