package io.quoit.doors;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.springframework.web.reactive.function.server.RequestPredicates.GET;
import static org.springframework.web.reactive.function.server.RequestPredicates.POST;
import static org.springframework.web.reactive.function.server.RouterFunctions.route;
import static org.springframework.web.reactive.function.server.ServerResponse.ok;

import io.quoit.reactor.QuoitLoopResources;
import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.springframework.http.MediaType;
import org.springframework.http.client.reactive.ReactorClientHttpConnector;
import org.springframework.http.server.reactive.ReactorHttpHandlerAdapter;
import org.springframework.web.reactive.function.client.WebClient;
import org.springframework.web.reactive.function.client.WebClientException;
import org.springframework.web.reactive.function.server.HandlerStrategies;
import org.springframework.web.reactive.function.server.RouterFunction;
import org.springframework.web.reactive.function.server.RouterFunctions;
import org.springframework.web.reactive.function.server.ServerResponse;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.DisposableServer;
import reactor.netty.http.client.HttpClient;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.LoopResources;

/** Spring's WebFlux and its WebClient: bodies both ways, a stream of events, and a handler that fails in its midst. */
class WebFluxTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int EVENTS = 1000;

    private static LoopResources loops(Transport transport) {
        return transport == Transport.STOCK
                ? LoopResources.create("stock", 2, true)
                : QuoitLoopResources.create("quoit", 2, true, transport.config());
    }

    private static RouterFunction<ServerResponse> routes() {
        return route(POST("/echo"), request -> ok().body(request.bodyToMono(String.class), String.class))
                .andRoute(
                        GET("/events"),
                        request -> ok().contentType(MediaType.TEXT_EVENT_STREAM)
                                .body(Flux.range(0, EVENTS).map(String::valueOf), String.class))
                .andRoute(
                        GET("/breaks"),
                        request -> ok().contentType(MediaType.TEXT_EVENT_STREAM)
                                .body(
                                        Flux.range(0, 3)
                                                .map(String::valueOf)
                                                .concatWith(Mono.error(new IllegalStateException("in its midst"))),
                                        String.class));
    }

    @ParameterizedTest
    @EnumSource
    void bodiesEventsAndFailures(Transport transport) {
        LoopResources loops = loops(transport);
        DisposableServer server = HttpServer.create()
                .runOn(loops)
                .host("127.0.0.1")
                .port(0)
                .handle(new ReactorHttpHandlerAdapter(
                        RouterFunctions.toHttpHandler(routes(), HandlerStrategies.withDefaults())))
                .bindNow(PATIENCE);
        try {
            WebClient client = WebClient.builder()
                    .clientConnector(new ReactorClientHttpConnector(HttpClient.create().runOn(loops)))
                    .baseUrl("http://127.0.0.1:" + server.port())
                    .codecs(codecs -> codecs.defaultCodecs().maxInMemorySize(1 << 20))
                    .build();
            List<String> bodies =
                    IntStream.range(0, 200).mapToObj(size -> "b".repeat(size * size + 1)).toList();
            List<String> echoed = Flux.fromIterable(bodies)
                    .flatMapSequential(body ->
                            client.post().uri("/echo").bodyValue(body).retrieve().bodyToMono(String.class))
                    .collectList()
                    .block(PATIENCE);
            assertEquals(bodies, echoed);
            List<String> events =
                    client.get().uri("/events").retrieve().bodyToFlux(String.class).collectList().block(PATIENCE);
            assertEquals(IntStream.range(0, EVENTS).mapToObj(String::valueOf).toList(), events);
            String broken = client.get()
                    .uri("/breaks")
                    .retrieve()
                    .bodyToFlux(String.class)
                    .collectList()
                    .map(List::toString)
                    .onErrorResume(WebClientException.class, failure -> Mono.just(failure.getClass().getSimpleName()))
                    .block(PATIENCE);
            assertEquals("WebClientResponseException", broken);
        } finally {
            server.disposeNow(PATIENCE);
            loops.disposeLater(Duration.ZERO, PATIENCE).block(PATIENCE);
        }
    }
}
