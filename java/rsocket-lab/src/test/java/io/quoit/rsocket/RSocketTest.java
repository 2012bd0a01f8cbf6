package io.quoit.rsocket;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.resolver.DefaultAddressResolverGroup;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.reactor.QuoitLoopResources;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.core.RSocketConnector;
import io.rsocket.core.RSocketServer;
import io.rsocket.core.Resume;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.server.CloseableChannel;
import io.rsocket.transport.netty.server.TcpServerTransport;
import io.rsocket.util.DefaultPayload;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.netty.Connection;
import reactor.netty.resources.LoopResources;
import reactor.netty.tcp.TcpClient;
import reactor.netty.tcp.TcpServer;
import reactor.util.retry.Retry;

/** rsocket-java over Quoit, with itself over NIO at the other end: all interaction models, fragments, resumption. */
class RSocketTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final int MTU = 1024;

    /** Which end is ours, on which engine, and whether the session can be resumed. */
    static Stream<Arguments> ways() {
        return Stream.of(QuoitEngine.URING, QuoitEngine.EPOLL)
                .flatMap(engine -> Stream.of(true, false)
                        .flatMap(server -> Stream.of(true, false).map(resume -> Arguments.of(engine, server, resume))));
    }

    private static final class Echo implements RSocket {
        private final Sinks.One<String> told;

        Echo(Sinks.One<String> told) {
            this.told = told;
        }

        @Override
        public Mono<Void> fireAndForget(Payload payload) {
            told.tryEmitValue(payload.getDataUtf8());
            payload.release();
            return Mono.empty();
        }

        @Override
        public Mono<Payload> requestResponse(Payload payload) {
            return Mono.just(payload);
        }

        @Override
        public Flux<Payload> requestStream(Payload payload) {
            int count = Integer.parseInt(payload.getDataUtf8());
            payload.release();
            return Flux.range(0, count).map(number -> DefaultPayload.create("item " + number));
        }

        @Override
        public Flux<Payload> requestChannel(Publisher<Payload> payloads) {
            return Flux.from(payloads);
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void allInteractionModelsEcho(QuoitEngine engine, boolean ourServer, boolean resume) {
        LoopResources quoit = QuoitLoopResources.create(
                "rsocket-quoit", 1, true, QuoitIoHandlerConfig.defaults().withEngine(engine));
        LoopResources nio = LoopResources.create("rsocket-nio", 1, true);
        Sinks.One<String> told = Sinks.one();
        TcpServer tcpServer =
                TcpServer.create().host("127.0.0.1").port(0).runOn(ourServer ? quoit : nio, false);
        RSocketServer server = RSocketServer.create(SocketAcceptor.with(new Echo(told))).fragment(MTU);
        if (resume) {
            server.resume(new Resume());
        }
        CloseableChannel listening = server.bind(TcpServerTransport.create(tcpServer)).block(PATIENCE);
        TcpClient tcpClient = TcpClient.create()
                .remoteAddress(listening::address)
                .resolver(DefaultAddressResolverGroup.INSTANCE)
                .runOn(ourServer ? nio : quoit, false);
        RSocketConnector connector = RSocketConnector.create().fragment(MTU);
        if (resume) {
            connector.resume(new Resume());
        }
        RSocket client = connector.connect(TcpClientTransport.create(tcpClient)).block(PATIENCE);
        try {
            client.fireAndForget(DefaultPayload.create("tell")).block(PATIENCE);
            assertEquals("tell", told.asMono().block(PATIENCE));

            String large = "large payload ".repeat(100_000);
            for (String text : List.of("", "small", large)) {
                Payload answer = client.requestResponse(DefaultPayload.create(text)).block(PATIENCE);
                assertEquals(text, answer.getDataUtf8());
                answer.release();
            }

            List<String> items = client.requestStream(DefaultPayload.create("5000"))
                    .map(payload -> {
                        String text = payload.getDataUtf8();
                        payload.release();
                        return text;
                    })
                    .collectList()
                    .block(PATIENCE);
            assertEquals(IntStream.range(0, 5000).mapToObj(number -> "item " + number).toList(), items);

            List<String> sent = IntStream.range(0, 200).mapToObj(number -> "x".repeat(number * 20)).toList();
            List<String> echoed = client.requestChannel(Flux.fromIterable(sent).map(DefaultPayload::create))
                    .map(payload -> {
                        String text = payload.getDataUtf8();
                        payload.release();
                        return text;
                    })
                    .collectList()
                    .block(PATIENCE);
            assertEquals(sent, echoed);
        } finally {
            client.dispose();
            listening.dispose();
            nio.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
            quoit.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }

    /** Which end is ours, on which engine. */
    static Stream<Arguments> ends() {
        return Stream.of(QuoitEngine.URING, QuoitEngine.EPOLL)
                .flatMap(engine -> Stream.of(true, false).map(server -> Arguments.of(engine, server)));
    }

    /** The connection is cut in the middle of a stream, twice: the session goes on over another one, and nothing is lost. */
    @ParameterizedTest
    @MethodSource("ends")
    void aStreamGoesOnOverAnotherConnection(QuoitEngine engine, boolean ourServer) {
        LoopResources quoit = QuoitLoopResources.create(
                "rsocket-quoit", 1, true, QuoitIoHandlerConfig.defaults().withEngine(engine));
        LoopResources nio = LoopResources.create("rsocket-nio", 1, true);
        RSocketServer server = RSocketServer.create(SocketAcceptor.with(new Echo(Sinks.one()))).resume(new Resume());
        CloseableChannel listening = server.bind(TcpServerTransport.create(
                        TcpServer.create().host("127.0.0.1").port(0).runOn(ourServer ? quoit : nio, false)))
                .block(PATIENCE);
        BlockingQueue<Connection> connections = new LinkedBlockingQueue<>();
        TcpClient tcpClient = TcpClient.create()
                .remoteAddress(listening::address)
                .resolver(DefaultAddressResolverGroup.INSTANCE)
                .doOnConnected(connections::add)
                .runOn(ourServer ? nio : quoit, false);
        RSocket client = RSocketConnector.create()
                .resume(new Resume().retry(Retry.fixedDelay(50, Duration.ofMillis(20))))
                .connect(TcpClientTransport.create(tcpClient))
                .block(PATIENCE);
        try {
            int count = 3000;
            AtomicInteger cuts = new AtomicInteger();
            List<String> items = client.requestStream(DefaultPayload.create(String.valueOf(count)))
                    .map(payload -> {
                        String text = payload.getDataUtf8();
                        payload.release();
                        return text;
                    })
                    .doOnNext(item -> {
                        if (item.equals("item 1000") || item.equals("item 2000")) {
                            cuts.incrementAndGet();
                            connections.remove().channel().close();
                        }
                    })
                    // So that the stream cannot have been sent whole before it is cut.
                    .limitRate(100)
                    .collectList()
                    .block(PATIENCE);
            assertEquals(IntStream.range(0, count).mapToObj(number -> "item " + number).toList(), items);
            assertEquals(2, cuts.get());
            assertEquals(1, connections.size(), "connections that were not cut");
        } finally {
            client.dispose();
            listening.dispose();
            nio.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
            quoit.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }
}
