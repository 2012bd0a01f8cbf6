package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What a peer reads of a process that ends when its write is done: on Netty's epoll transport first, and then on this one. */
class ExitTracesTest {
    /** On this transport alone, as docs/netty.md says: it was copied, and would have left at the end of the loop's run. */
    private static final String LOST = "0 and its end";

    @ParameterizedTest
    @CsvSource({
        "1000, at once, true",
        "5000, at once, false",
        "40000, at once, false",
        "1000, in order, false",
        "5000, in order, false",
        "1000000, in order, false"
    })
    void thePeerReadsTheSameAsOnNettysOwnTransport(int length, String how, boolean differs) throws Exception {
        Assumptions.assumeFalse(UnderTest.SMALL, "nothing is copied with small limits");
        String stock = read("EPOLL", length, how);
        assertEquals(length + " and its end", stock);
        String ours = read("ours " + UnderTest.ENGINE, length, how);
        if (differs) {
            assertNotEquals(stock, ours, "it differs no more");
            assertEquals(LOST, ours);
        } else {
            assertEquals(stock, ours);
        }
    }

    private static String read(String transport, int length, String how) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            CompletableFuture<String> reading = CompletableFuture.supplyAsync(() -> readOne(listener));
            Child.run(
                    List.of(), Exiting.class, transport, String.valueOf(listener.getLocalPort()), String.valueOf(length), how);
            return reading.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static String readOne(ServerSocket listener) {
        try (Socket peer = listener.accept()) {
            return peer.getInputStream().readAllBytes().length + " and its end";
        } catch (IOException failure) {
            throw new CompletionException(failure);
        }
    }
}
