package io.quoit.vertx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.vertx.core.Future;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpServer;
import io.vertx.core.net.SocketAddress;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class QuoitVertxTransportTest {
    /**
     * For what is sure to happen. The first request of a fresh virtual machine loads most of Vert.x on its event loops: 8 s
     * of a processor that it has to itself only in part, and more on a busy machine.
     */
    private static final int PATIENCE_SECONDS = 120;

    private static <T> T await(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /**
     * Vert.x's HTTP server and client on this transport, over TCP and over a Unix socket. Bodies are asked for on the event
     * loop that hands out the response, by nesting: a chain that this thread goes on building may come after the bytes,
     * which are then gone.
     */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void httpServerAndClientRunOnTheTransport(QuoitEngine engine, @TempDir Path folder) throws Exception {
        Vertx vertx = Vertx.builder()
                .with(new VertxOptions().setEventLoopPoolSize(2))
                .withTransport(new QuoitVertxTransport(QuoitIoHandlerConfig.defaults().withEngine(engine)))
                .build();
        try {
            assertTrue(vertx.isNativeTransportEnabled());
            HttpServer tcp = vertx.createHttpServer().requestHandler(request -> request.body()
                    .onSuccess(body -> request.response().end(body)));
            await(tcp.listen(0, "127.0.0.1"));
            String path = folder.resolve("http").toString();
            HttpServer unix = vertx.createHttpServer().requestHandler(request -> request.response().end("unix"));
            await(unix.listen(SocketAddress.domainSocketAddress(path)));
            HttpClient client = vertx.createHttpClient();
            for (int size : new int[] {0, 1, 5_000, 1_000_000}) {
                Buffer body = Buffer.buffer("v".repeat(size));
                Buffer answer = await(client.request(HttpMethod.POST, tcp.actualPort(), "127.0.0.1", "/")
                        .compose(request -> request.send(body).compose(HttpClientResponse::body)));
                assertEquals(body, answer);
            }
            Buffer answer = await(client.request(new io.vertx.core.http.RequestOptions()
                            .setServer(SocketAddress.domainSocketAddress(path))
                            .setHost("localhost")
                            .setPort(80)
                            .setURI("/"))
                    .compose(request -> request.send().compose(HttpClientResponse::body)));
            assertEquals("unix", answer.toString());
        } finally {
            await(vertx.close());
        }
    }
}
