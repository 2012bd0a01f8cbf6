package io.quoit.vertx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.vertx.core.Vertx;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Vert.x without a library for Quoit: in a child of this process, which has one. */
class FallBackTest {
    private static final String NOWHERE = "/nowhere/libquoit.so";

    @Test
    void withoutTheLibraryVertxRunsOnNioAndTheCauseIsLogged() throws Exception {
        List<String> command = List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Dio.quoit.netty.library=" + NOWHERE,
                "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                FallBackTest.class.getName());
        Process child = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, child.waitFor(), output);
        assertTrue(output.contains("native=false, listening"), output);
        assertEquals(2, output.split("Vert.x uses NIO instead: " + NOWHERE, -1).length, output);
    }

    public static void main(String[] arguments) throws Exception {
        Vertx vertx = Vertx.builder().withTransport(new QuoitVertxTransport()).build();
        vertx.createHttpServer()
                .requestHandler(request -> request.response().end())
                .listen(0, "127.0.0.1")
                .toCompletionStage()
                .toCompletableFuture()
                .get(20, TimeUnit.SECONDS);
        System.out.println("native=" + vertx.isNativeTransportEnabled() + ", listening");
        vertx.close().toCompletionStage().toCompletableFuture().get(20, TimeUnit.SECONDS);
    }
}
