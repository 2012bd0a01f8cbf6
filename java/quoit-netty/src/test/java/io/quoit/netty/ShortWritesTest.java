package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A short write is done when {@code writeAndFlush} returns: what its listeners do comes before the next message is read, such
 * as the close behind a response, after which no further request may be answered.
 */
class ShortWritesTest {
    /** More than one read brings, so that the loop turns several times while all of it is there. */
    private static final int SENT_BYTES = 1 << 20;

    private static final int PART_BYTES = 300;

    private EventLoopGroup group;

    /** The writes that were not done when they were flushed, by their number. */
    private final List<Integer> late = new ArrayList<>();

    private final CompletableFuture<Integer> written = new CompletableFuture<>();

    @BeforeEach
    void copies() {
        Assumptions.assumeFalse(UnderTest.SMALL, "nothing is copied with small limits");
    }

    @AfterEach
    void end() throws Exception {
        if (group == null) {
            // It was left out.
            return;
        }
        group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
    }

    /** Writes at each read what there is to say then, each with a flush of its own, until it has read so many bytes. */
    @ChannelHandler.Sharable
    private final class Writes extends SimpleChannelInboundHandler<ByteBuf> {
        private final Function<ByteBuf, List<byte[]>> responses;
        private int awaited;
        private int writes;

        Writes(int awaited, Function<ByteBuf, List<byte[]>> responses) {
            this.awaited = awaited;
            this.responses = responses;
        }

        @Override
        protected void channelRead0(ChannelHandlerContext context, ByteBuf received) {
            awaited -= received.readableBytes();
            for (byte[] response : responses.apply(received)) {
                ChannelFuture write = context.writeAndFlush(Unpooled.copiedBuffer(response));
                if (!write.isSuccess()) {
                    late.add(writes);
                }
                writes++;
            }
            if (awaited == 0) {
                written.complete(writes);
            }
        }
    }

    private Channel serve(Side side, int awaited, Function<ByteBuf, List<byte[]>> responses) throws Exception {
        group = side.group(UnderTest.config());
        return side.bootstrap(group)
                .childHandler(new Writes(awaited, responses))
                .bind(new InetSocketAddress("127.0.0.1", 0))
                .sync()
                .channel();
    }

    @ParameterizedTest
    @EnumSource
    void oneAtEachRead(Side side) throws Exception {
        byte[] word = {'o', 'k'};
        Channel server = serve(side, SENT_BYTES, received -> List.of(word));
        try (Socket socket = Peers.connect(server)) {
            socket.getOutputStream().write(new byte[SENT_BYTES]);
            int writes = written.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertTrue(writes > 1, "one read brought all");
            Peers.read(socket, writes * word.length);
        }
        assertEquals(List.of(), late);
    }

    /** Writes these, one by one, when it reads a byte; all of them have arrived then. */
    private void writeAtOneRead(Side side, List<byte[]> responses, byte[] all) throws Exception {
        Channel server = serve(side, 1, received -> responses);
        try (Socket socket = Peers.connect(server)) {
            socket.getOutputStream().write(1);
            assertEquals(responses.size(), written.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertArrayEquals(all, Peers.read(socket, all.length));
        }
    }

    @ParameterizedTest
    @EnumSource
    void manyAtOneRead(Side side) throws Exception {
        // Of all lengths that are copied, 15 KiB together.
        List<byte[]> responses = new ArrayList<>();
        byte[] all = Peers.bytes(15 << 10);
        int length = 1;
        for (int from = 0; from < all.length; from += length) {
            length = Math.min(length % 1500 + 97, all.length - from);
            responses.add(Arrays.copyOfRange(all, from, from + length));
        }
        writeAtOneRead(side, responses, all);
        assertEquals(List.of(), late);
    }

    /** What a channel may have copied in one run is eight times the threshold. */
    @ParameterizedTest
    @EnumSource
    void moreAtOneReadThanIsCopied(Side side) throws Exception {
        int length = 512;
        byte[] all = Peers.bytes(40 * length);
        List<byte[]> responses = new ArrayList<>();
        for (int from = 0; from < all.length; from += length) {
            responses.add(Arrays.copyOfRange(all, from, from + length));
        }
        writeAtOneRead(side, responses, all);
        assertEquals(side == Side.STOCK ? List.of() : List.of(32, 33, 34, 35, 36, 37, 38, 39), late);
    }

    /** What the table in docs/netty.md says: between the copied ones and those that get a call of their own, it differs. */
    @ParameterizedTest
    @EnumSource
    void byTheirLength(Side side) throws Exception {
        Channel server = serve(side, 5 * Integer.BYTES, received -> List.of(new byte[received.readInt()]));
        for (int length : new int[] {1, 2048, 2049, 8191, 8192}) {
            try (Socket socket = Peers.connect(server)) {
                socket.getOutputStream().write(ByteBuffer.allocate(Integer.BYTES).putInt(length).array());
                assertEquals(length, Peers.read(socket, length).length);
            }
        }
        assertEquals(5, written.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertEquals(side == Side.STOCK ? List.of() : List.of(2, 3), late);
    }

    private void write(Channel channel, byte[] all, int round) {
        byte[] part = Arrays.copyOfRange(all, round * PART_BYTES, (round + 1) * PART_BYTES);
        if (!channel.writeAndFlush(Unpooled.copiedBuffer(part)).isSuccess()) {
            late.add(round);
        }
    }

    /** What is written to several connections, twice to each and then by turns, goes to each as a whole. */
    @ParameterizedTest
    @EnumSource
    void ofManyConnectionsByTurns(Side side) throws Exception {
        int rounds = 20;
        byte[] all = Peers.bytes(rounds * PART_BYTES);
        List<Channel> channels = new ArrayList<>();
        CompletableFuture<List<Channel>> reached = new CompletableFuture<>();
        int peers = 5;
        group = side.group(UnderTest.config());
        Channel server = side.bootstrap(group)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new SimpleChannelInboundHandler<ByteBuf>() {
                            @Override
                            protected void channelRead0(ChannelHandlerContext context, ByteBuf received) {
                                channels.add(channel);
                                if (channels.size() == peers) {
                                    reached.complete(channels);
                                }
                            }
                        });
                    }
                })
                .bind(new InetSocketAddress("127.0.0.1", 0))
                .sync()
                .channel();
        List<Socket> sockets = new ArrayList<>();
        try {
            for (int peer = 0; peer < peers; peer++) {
                Socket socket = Peers.connect(server);
                sockets.add(socket);
                socket.getOutputStream().write(1);
            }
            reached.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
            group.submit(() -> {
                for (Channel channel : channels) {
                    write(channel, all, 0);
                    write(channel, all, 1);
                }
                for (int round = 2; round < rounds; round++) {
                    for (Channel channel : channels) {
                        write(channel, all, round);
                    }
                }
            }).sync();
            for (Socket socket : sockets) {
                assertArrayEquals(all, Peers.read(socket, all.length));
            }
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
        assertEquals(List.of(), late);
    }
}
