package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.EventLoopGroup;
import java.net.Socket;
import java.util.Arrays;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Whoever watches a channel's queue sees what is in it leave as the peer takes it: {@code IdleStateHandler} does, when it is to
 * observe the output, and calls a connection idle whose bytes flow if they do not.
 */
class ProgressTest {
    private static final int ROUND = 1 << 20;
    private static final int ROUNDS = 8;

    private final Peers.Accepted accepted = new Peers.Accepted();
    private EventLoopGroup group;

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    /** What {@code IdleStateHandler} looks at. */
    private record Watched(long pending, long progress, Object first) {
        static Watched of(Channel channel) throws InterruptedException, ExecutionException {
            return channel.eventLoop()
                    .submit(() -> {
                        ChannelOutboundBuffer queue = channel.unsafe().outboundBuffer();
                        return new Watched(queue.totalPendingWriteBytes(), queue.currentProgress(), queue.current());
                    })
                    .get();
        }
    }

    private Channel connected(Side side) throws Exception {
        group = side.group(UnderTest.config());
        return side.bootstrap(group)
                .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    /** Waits until what was read has left the queue, as its first message tells. */
    private static void awaitProgress(Channel channel, long read) throws Exception {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (Watched.of(channel).progress() < read) {
            assertTrue(System.nanoTime() < giveUp, "the peer has read " + read + ", and " + Watched.of(channel));
            Thread.onSpinWait();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aLongBufferLeavesAsItIsRead(Side side) throws Exception {
        byte[] bytes = Peers.bytes(ROUNDS * ROUND);
        try (Socket peer = Peers.connectNarrow(connected(side))) {
            Channel channel = accepted.next();
            ChannelFuture written = channel.writeAndFlush(Peers.direct(bytes));
            for (int round = 1; round < ROUNDS; round++) {
                assertArrayEquals(
                        Arrays.copyOfRange(bytes, (round - 1) * ROUND, round * ROUND), Peers.read(peer, ROUND));
                awaitProgress(channel, (long) round * ROUND);
                assertFalse(written.isDone());
            }
            assertArrayEquals(Arrays.copyOfRange(bytes, (ROUNDS - 1) * ROUND, bytes.length), Peers.read(peer, ROUND));
            written.sync();
            assertNull(Watched.of(channel).first());
        }
    }

    /** A buffer of many parts is let go of when all of it has left, and what stands behind it then comes to be the first. */
    @ParameterizedTest
    @EnumSource
    void messagesLeaveTheQueueOneByOne(Side side) throws Exception {
        byte[] bytes = Peers.bytes(ROUND);
        try (Socket peer = Peers.connectNarrow(connected(side))) {
            Channel channel = accepted.next();
            ByteBuf[] messages = new ByteBuf[ROUNDS];
            ChannelFuture[] written = new ChannelFuture[ROUNDS];
            channel.eventLoop()
                    .submit(() -> {
                        for (int round = 0; round < ROUNDS; round++) {
                            messages[round] = round % 2 == 0
                                    ? Peers.direct(bytes)
                                    : Unpooled.wrappedBuffer(
                                            Peers.direct(Arrays.copyOf(bytes, ROUND / 2)),
                                            Peers.direct(Arrays.copyOfRange(bytes, ROUND / 2, ROUND)));
                            written[round] = channel.write(messages[round]);
                        }
                        channel.flush();
                    })
                    .sync();
            for (int round = 0; round < ROUNDS; round++) {
                assertArrayEquals(bytes, Peers.read(peer, ROUND));
                written[round].sync();
                assertTrue(messages[round].refCnt() == 0, "let go of");
                long pending = Watched.of(channel).pending();
                assertTrue(pending <= (long) (ROUNDS - round) * (ROUND + 1024), pending + " in round " + round);
            }
            assertTrue(written[ROUNDS - 1].isSuccess());
        }
    }
}
