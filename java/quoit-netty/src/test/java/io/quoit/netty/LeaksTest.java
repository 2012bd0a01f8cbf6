package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The leak detector sees received buffers, although their memory, and they themselves, are used again. */
class LeaksTest {
    @Test
    void aReceivedBufferThatNobodyReleasesIsReportedWhileItsLoopRuns() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        Peers.Keeper keeper = new Peers.Keeper();
        try {
            Channel server = Peers.serve(group, () -> keeper);
            try (Socket client = Peers.connect(server)) {
                // A slot's first buffer, and one that was released before.
                for (int before : new int[] {0, 2 * UnderTest.config().receiveSlots()}) {
                    for (int released = 0; released < before; released++) {
                        client.getOutputStream().write(1);
                        keeper.message().release();
                    }
                    String hint = "dropped after " + before;
                    client.getOutputStream().write(2);
                    keeper.message().touch(hint);
                    // The loop that handed it over still has it in its hand, until it is on to something else.
                    group.submit(() -> {}).sync();
                    List<String> found = Leaks.find();
                    assertTrue(found.toString().contains(hint), "reported: " + found);
                }
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
