package io.quoit.reactor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.socket.DatagramPacket;
import io.quoit.netty.QuoitDatagramChannel;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitSocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.ByteBufFlux;
import reactor.netty.Connection;
import reactor.netty.DisposableServer;
import reactor.netty.http.client.HttpClient;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.ConnectionProvider;
import reactor.netty.resources.LoopResources;
import reactor.netty.udp.UdpClient;
import reactor.netty.udp.UdpServer;

class QuoitLoopResourcesTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    /** Reactor Netty's HTTP server and client on the same loops, with bodies of several sizes, several at once. */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void httpServerAndClientRunOnTheLoops(QuoitEngine engine) {
        QuoitLoopResources loops = QuoitLoopResources.create(
                "quoit-test", 2, true, QuoitIoHandlerConfig.defaults().withEngine(engine));
        AtomicReference<Object> channel = new AtomicReference<>();
        ConnectionProvider connections = ConnectionProvider.create("quoit-test");
        DisposableServer server = HttpServer.create()
                .runOn(loops)
                .host("127.0.0.1")
                .port(0)
                .doOnConnection(connection -> channel.set(connection.channel()))
                .route(routes -> routes.post(
                        "/echo", (request, response) -> response.send(request.receive().retain())))
                .bindNow(PATIENCE);
        try {
            HttpClient client = HttpClient.create(connections)
                    .runOn(loops)
                    .baseUrl("http://localhost:" + server.port());
            List<String> bodies = List.of("", "a", "b".repeat(5_000), "c".repeat(1_000_000), "d".repeat(17));
            List<String> answers = Flux.fromIterable(bodies)
                    .flatMapSequential(body -> client.post()
                            .uri("/echo")
                            .send(ByteBufFlux.fromString(Mono.just(body)))
                            .responseContent()
                            .aggregate()
                            .asString()
                            .defaultIfEmpty(""))
                    .collectList()
                    .block(PATIENCE);
            assertEquals(bodies, answers);
            assertInstanceOf(QuoitSocketChannel.class, channel.get());
        } finally {
            server.disposeNow(PATIENCE);
            connections.disposeLater().block(PATIENCE);
            loops.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }

    /** Who blocks on a loop is told so, and the loop goes on: on Reactor Netty's own loops first. */
    @Test
    void blockingOnALoopIsRefused() throws Exception {
        for (LoopResources loops :
                List.of(LoopResources.create("own-test", 1, true), QuoitLoopResources.create("quoit-test", 1, true))) {
            for (EventLoopGroup group : List.of(loops.onServer(false), loops.onServerSelect(false), loops.onClient(false))) {
                Throwable cause = group.next()
                        .submit(() -> Mono.never().block(Duration.ofMillis(1)))
                        .await()
                        .cause();
                assertInstanceOf(IllegalStateException.class, cause, loops.toString());
                assertTrue(cause.getMessage().contains("blocking, which is not supported in thread"), cause.getMessage());
            }
            loops.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }

    @Test
    void loopsThatAreDisposedOfSaySo() {
        for (LoopResources loops :
                List.of(LoopResources.create("own-test", 1, true), QuoitLoopResources.create("quoit-test", 1, true))) {
            assertFalse(loops.isDisposed(), loops.toString());
            loops.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
            assertTrue(loops.isDisposed(), loops.toString());
        }
    }

    /** Reactor Netty's UDP server and client. */
    @ParameterizedTest
    @EnumSource(QuoitEngine.class)
    void datagramsAreEchoed(QuoitEngine engine) {
        QuoitLoopResources loops = QuoitLoopResources.create(
                "quoit-test", 2, true, QuoitIoHandlerConfig.defaults().withEngine(engine));
        Connection server = UdpServer.create()
                .runOn(loops)
                .host("127.0.0.1")
                .port(0)
                .handle((in, out) -> out.sendObject(in.receiveObject()
                        .cast(DatagramPacket.class)
                        .map(packet -> new DatagramPacket(packet.content().retain(), packet.sender()))))
                .bindNow(PATIENCE);
        try {
            assertInstanceOf(QuoitDatagramChannel.class, server.channel());
            Connection client = UdpClient.create()
                    .runOn(loops)
                    .remoteAddress(() -> server.channel().localAddress())
                    .connectNow(PATIENCE);
            String echo = client.outbound()
                    .sendString(Mono.just("a datagram"))
                    .then()
                    .then(client.inbound().receive().asString().next())
                    .block(PATIENCE);
            assertEquals("a datagram", echo);
            client.disposeNow(PATIENCE);
        } finally {
            server.disposeNow(PATIENCE);
            loops.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }
}
