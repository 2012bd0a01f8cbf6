package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Runs a scenario on Netty's epoll transport and then on this one, and compares what could be seen of it. Where Netty's own
 * transports differ among themselves and this one is as NIO, that is said; what is as none of them is pinned, and stands with
 * its reason in docs/netty.md.
 */
final class Traces {
    private final Map<String, List<String>> differs;
    private final Set<String> asNio;

    /**
     * @param differs what is seen of a scenario here alone, by its name
     * @param asNio the scenarios of which is seen here what NIO shows, and not Netty's epoll transport
     */
    Traces(Map<String, List<String>> differs, Set<String> asNio) {
        this.differs = differs;
        this.asNio = asNio;
    }

    /** Where a scenario plays. */
    interface Stage extends AutoCloseable {
        Trace trace();

        /** Ends all; what happens by itself has happened then. */
        @Override
        void close() throws Exception;
    }

    /** Makes a stage of Netty's transport, or of this one for null. */
    interface Stages<S extends Stage> {
        S of(Stock stock) throws Exception;
    }

    /** A scenario, step by step: each waits for what it must come behind. */
    interface Steps<S extends Stage> {
        void run(S stage) throws Exception;
    }

    <S extends Stage> void compare(String name, Stages<S> stages, Steps<S> steps) throws Exception {
        List<String> epoll = traced(Stock.EPOLL, stages, steps);
        assertFalse(epoll.isEmpty());
        List<String> ours = traced(null, stages, steps);
        List<String> expected = epoll;
        if (asNio.contains(name)) {
            expected = traced(Stock.NIO, stages, steps);
        } else if (differs.containsKey(name)) {
            expected = differs.get(name);
            assertNotEquals(epoll, ours, "it differs no more");
        }
        assertEquals(String.join("\n", expected), String.join("\n", ours));
    }

    private static <S extends Stage> List<String> traced(Stock stock, Stages<S> stages, Steps<S> steps) throws Exception {
        try (S stage = stages.of(stock)) {
            try {
                steps.run(stage);
            } catch (AssertionError | Exception failure) {
                throw new AssertionError(
                        (stock == null ? "ours" : stock) + ": " + failure.getMessage() + "; " + stage.trace().steps(),
                        failure);
            }
            stage.close();
            return stage.trace().steps();
        }
    }
}
