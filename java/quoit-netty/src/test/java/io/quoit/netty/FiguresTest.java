package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.EventLoopGroup;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What users of other transports ask for in vain is among a loop's figures. */
class FiguresTest {
    @Test
    void aLoopTellsWhatItCarriesHoldsAndWaitsFor() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            group.submit(() -> {}).sync();
            QuoitLoopSnapshot loop = Quoit.loops().get(0);
            for (String figure : List.of(
                    "queued_bytes",
                    "pool_slots",
                    "pool_leased",
                    "pool_low_water",
                    "pipeline_slots",
                    "receive_no_buffers",
                    "receive_arms",
                    "accept_arms",
                    "completion_queue_overflows")) {
                assertTrue(loop.value(figure) >= 0, figure);
            }
            for (String shape : List.of(
                    "enter_submissions", "enter_completions", "write_pieces", "write_bytes", "flush_nanos")) {
                assertTrue(loop.histogram(shape).count() >= 0, shape);
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
