package io.quoit.peers;

import java.util.concurrent.TimeUnit;

/**
 * What a client asks for. The cases are those of the article on Netty's io_uring under RSocket, their connections scaled as
 * the lab's experiments of the same names are.
 *
 * @param connections how many
 * @param streams open at once on each
 * @param messages of a stream; 0: without end
 * @param size bytes of a message
 * @param window credit that a stream begins with
 * @param batch messages a tick
 * @param periodMillis of a tick; 0: without a pace
 * @param response whether to ask for single responses, instead of streams
 */
record RSocketCase(
        int connections,
        int streams,
        int messages,
        int size,
        int window,
        int batch,
        int periodMillis,
        boolean response) {
    RSocketCase {
        check("connections", connections, 1, 1 << 16);
        check("streams", streams, 1, 1 << 16);
        check("messages", messages, 0, Integer.MAX_VALUE);
        check("size", size, RSocketConnection.STAMP_BYTES, RSocketConnection.MOST_MESSAGE);
        check("window", window, 1, Integer.MAX_VALUE);
        check("batch", batch, 0, Integer.MAX_VALUE);
        check("period", periodMillis, 0, Integer.MAX_VALUE);
        if (batch == 0 != (periodMillis == 0)) {
            throw new IllegalArgumentException("batch and period are both 0, or both are not");
        }
    }

    /**
     * Nanoseconds into its period at which a connection has its ticks: they are spread evenly, so that what is offered is even, a window
     * of less than a period has its part of the messages, and the ticks of no transport come closer together than those of another.
     *
     * @param connection its number, from 0
     */
    long phaseNanos(int connection) {
        return TimeUnit.MILLISECONDS.toNanos(periodMillis) * connection / connections;
    }

    private static void check(String name, int value, int least, int most) {
        if (value < least || value > most) {
            throw new IllegalArgumentException(name + " is " + value + ": it must be " + least + " to " + most);
        }
    }

    /** The case that a word names; null if there is none. */
    static RSocketCase of(String word) {
        return switch (word) {
            case "rpc-backend" -> new RSocketCase(4, 1_000, 32, 128, 32, 1, 100, false);
            case "rpc-batch" -> new RSocketCase(200, 30, 0, 128, 1_000, 10, 10_000, false);
            case "rpc-periodic" -> new RSocketCase(80, 100, 0, 128, 1_000, 1, 1_000, false);
            case "rpc-stream" -> new RSocketCase(1, 1, 0, 1_024, 700_000, 0, 0, false);
            case "rpc-response" -> new RSocketCase(16, 100, 1, 128, 1, 0, 0, true);
            default -> null;
        };
    }

    /** The same with another value for the option {@code --name}; null if there is no such option. */
    RSocketCase with(String name, int value) {
        return switch (name) {
            case "--connections" ->
                new RSocketCase(value, streams, messages, size, window, batch, periodMillis, response);
            case "--streams" ->
                new RSocketCase(connections, value, messages, size, window, batch, periodMillis, response);
            case "--messages" ->
                new RSocketCase(connections, streams, value, size, window, batch, periodMillis, response);
            case "--size" ->
                new RSocketCase(connections, streams, messages, value, window, batch, periodMillis, response);
            case "--window" ->
                new RSocketCase(connections, streams, messages, size, value, batch, periodMillis, response);
            case "--batch" ->
                new RSocketCase(connections, streams, messages, size, window, value, periodMillis, response);
            case "--period" ->
                new RSocketCase(connections, streams, messages, size, window, batch, value, response);
            default -> null;
        };
    }
}
