package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPromise;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.EventLoopGroup;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Flushes that are offered to the kernel in their midst: from 8 KiB on, behind nothing. */
class LongFlushTest {
    private final EventLoopGroup group = UnderTest.group(1);
    private final Peers.Keeper keeper = new Peers.Keeper();
    private final Peers.Accepted accepted = new Peers.Accepted(channel -> channel.pipeline().addLast(keeper));
    private final Channel server =
            Peers.serve(group, QuoitServerSocketChannel.class, accepted, new InetSocketAddress("127.0.0.1", 0));

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private static void run(Channel channel, Runnable task) throws Exception {
        channel.eventLoop().submit(task).get();
    }

    @Test
    void whatTheKernelTakesIsDoneWhenTheFlushReturns() throws Exception {
        byte[] bytes = Peers.bytes(48 << 10);
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            QuoitChannelSnapshot before = channel.snapshot();
            run(channel, () -> {
                ByteBuf sent = Peers.direct(bytes);
                ChannelFuture write = channel.writeAndFlush(sent);
                assertTrue(write.isSuccess());
                assertEquals(0, sent.refCnt());
                assertFalse(channel.outbound().lends());
                QuoitChannelSnapshot after = channel.snapshot();
                assertEquals(0, after.pendingBytes());
                assertEquals(before.writes() + 1, after.writes());
                assertEquals(before.writtenPieces() + 1, after.writtenPieces());
                assertEquals(before.writtenBytes() + bytes.length, after.writtenBytes());
                assertEquals(before.flushes() + 1, after.flushes());
                assertTrue(after.flushNanos() > before.flushNanos());
            });
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
        }
    }

    /** Behind a copied send and behind a lent one, which the library is given with the turn, and behind what it has queued. */
    @Test
    void aLongFlushOvertakesNothing() throws Exception {
        byte[] bytes = Peers.bytes(1 << 20);
        int[] sizes = {10, 40_000, 3000, 50_000, 33_000, 700, 70_000};
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            run(channel, () -> {
                int at = 0;
                for (int flush = 0; at < bytes.length; flush++) {
                    int end = Math.min(bytes.length, at + sizes[flush % sizes.length]);
                    channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(bytes, at, end)));
                    at = end;
                }
            });
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
        }
    }

    /** The socket takes a part, the rest is lent, and what is flushed then waits for that. */
    @Test
    void whatTheSocketHasNoRoomForFollowsWhenItHas(@TempDir Path folder) throws Exception {
        byte[] bytes = Peers.bytes(4 << 20);
        Path file = Files.write(folder.resolve("file"), bytes);
        try (Socket client = Peers.connectNarrow(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
            long before = channel.snapshot().writtenBytes();
            List<ChannelFuture> writes = new ArrayList<>();
            int at = 0;
            for (int number = 0; at < bytes.length; number++) {
                int from = at;
                int end = Math.min(bytes.length, from + 40_000 + number * 997 % 60_000);
                int kind = number % 5;
                at = end;
                run(channel, () -> writes.add(channel.writeAndFlush(message(kind, channel, file, bytes, from, end))));
            }
            assertFalse(writes.get(writes.size() - 1).isDone());
            // More than the socket has room for is known, so that something was sent in part, or not at all.
            assertTrue(channel.snapshot().pendingBytes() > 0);
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
            for (ChannelFuture write : writes) {
                write.sync();
            }
            QuoitChannelSnapshot done = group.submit(channel::snapshot).get();
            assertEquals(before + bytes.length, done.writtenBytes());
            assertEquals(0, done.pendingBytes());
        }
    }

    private static Object message(int kind, Channel channel, Path file, byte[] bytes, int from, int end) {
        int middle = (from + end) / 2;
        return switch (kind) {
            case 0 -> Peers.direct(Arrays.copyOfRange(bytes, from, end));
            case 1 -> Unpooled.wrappedBuffer(bytes, from, end - from);
            case 2 -> Unpooled.compositeBuffer()
                    .addComponent(true, Peers.direct(Arrays.copyOfRange(bytes, from, middle)))
                    .addComponent(true, Peers.direct(Arrays.copyOfRange(bytes, middle, end)));
            case 3 -> new DefaultFileRegion(file.toFile(), from, end - from);
            default -> channel.alloc().directBuffer().writeBytes(bytes, from, end - from).asReadOnly();
        };
    }

    /** What is written in part keeps its own account: its first bytes count as sent, the rest as pending. */
    @Test
    void ofAMessageThatIsSentInPartTheRestIsPending() throws Exception {
        byte[] bytes = Peers.bytes(8 << 20);
        try (Socket client = Peers.connectNarrow(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
            ByteBuf sent = Peers.direct(bytes);
            ChannelPromise write = channel.newPromise();
            run(channel, () -> {
                channel.writeAndFlush(sent, write);
                assertFalse(write.isDone());
                assertTrue(sent.readerIndex() > 0, "nothing was taken at once");
                assertFalse(channel.isWritable());
                assertTrue(channel.outbound().lends());
            });
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
            write.sync();
            assertEquals(0, sent.refCnt());
        }
    }

    /** A handler that writes whenever it may has as many sends in one flush as the channel's option says, and one more. */
    @Test
    void aFlushThatIsFilledAgainLeavesTheLoopToOthers() throws Exception {
        byte[] bytes = Peers.bytes(4 << 20);
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            channel.config().setWriteSpinCount(3);
            long before = channel.snapshot().writes();
            Filler filler = new Filler(bytes);
            channel.pipeline().addLast(filler);
            run(channel, () -> {
                filler.channelWritabilityChanged(channel.pipeline().lastContext());
                long writes = channel.snapshot().writes() - before;
                // With small limits none is long enough.
                assertEquals(UnderTest.SMALL ? 1 : 4, writes);
                assertTrue(channel.outbound().lends());
            });
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
        }
    }

    /** Writes a KiB at a time as long as the channel is writable, and flushes. */
    private static final class Filler extends ChannelInboundHandlerAdapter {
        private final ByteBuf left;

        Filler(byte[] bytes) {
            left = Unpooled.wrappedBuffer(bytes);
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            while (left.isReadable() && context.channel().isWritable()) {
                context.write(context.alloc().directBuffer(1 << 10).writeBytes(left, 1 << 10));
            }
            context.flush();
        }
    }

    /** A promise's listener may end the channel while others that the same call has sent are still to be told. */
    @Test
    void aListenerMayCloseTheChannelInTheMidst() throws Exception {
        byte[] bytes = Peers.bytes(64 << 10);
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            List<ByteBuf> sent = new ArrayList<>();
            List<ChannelFuture> writes = new ArrayList<>();
            run(channel, () -> {
                for (int at = 0; at < bytes.length; at += 4096) {
                    sent.add(Peers.direct(Arrays.copyOfRange(bytes, at, at + 4096)));
                    writes.add(channel.write(sent.get(sent.size() - 1)));
                }
                writes.get(1).addListener(done -> channel.close());
                channel.flush();
            });
            channel.closeFuture().sync();
            // With small limits two of them are what the library had been given.
            int least = UnderTest.SMALL ? 2 * 4096 : bytes.length;
            byte[] received = client.getInputStream().readAllBytes();
            assertTrue(received.length >= least, "only " + received.length);
            assertArrayEquals(Arrays.copyOf(bytes, received.length), received);
            assertTrue(writes.get(0).isSuccess() && writes.get(1).isSuccess());
            for (ChannelFuture write : writes) {
                assertTrue(write.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            }
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            sent.forEach(buffer -> assertEquals(0, buffer.refCnt()));
        }
        assertNull(keeper.events.stream().filter(Throwable.class::isInstance).findAny().orElse(null));
    }

    @Test
    void theSendingDirectionEndsBehindWhatWasSentInPart() throws Exception {
        byte[] bytes = Peers.bytes(2 << 20);
        for (boolean close : new boolean[] {false, true}) {
            try (Socket client = Peers.connectNarrow(server)) {
                QuoitSocketChannel channel = accepted.next(client);
                channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
                ByteBuf sent = Peers.direct(bytes);
                run(channel, () -> {
                    channel.writeAndFlush(sent);
                    assertTrue(channel.outbound().lends());
                    ChannelFuture ended = close ? channel.close() : channel.shutdownOutput();
                    assertTrue(sent.refCnt() > 0, "memory in flight was freed");
                });
                Peers.assertReceivesAll(client, bytes);
            }
        }
    }

    @Test
    void aResetFailsWhatWasSentInPartAndWhatWaits() throws Exception {
        try (Socket client = Peers.connectNarrow(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
            List<ByteBuf> sent = List.of(Peers.direct(new byte[8 << 20]), Peers.direct(new byte[100_000]));
            List<ChannelFuture> writes = new ArrayList<>();
            run(channel, () -> {
                writes.add(channel.writeAndFlush(sent.get(0)));
                assertTrue(channel.outbound().lends());
                writes.add(channel.writeAndFlush(sent.get(1)));
            });
            reset(client);
            assertFails(writes, "reset");
            assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            sent.forEach(buffer -> assertEquals(0, buffer.refCnt()));
        }
    }

    /** The call of the flush is what finds out; the promise is told by the loop's report. */
    @Test
    void aFlushThatFindsTheConnectionResetFails() throws Exception {
        Socket client = Peers.connect(server);
        QuoitSocketChannel channel = accepted.next(client);
        ByteBuf sent = Peers.direct(new byte[100_000]);
        List<ChannelFuture> writes = new ArrayList<>();
        run(channel, () -> {
            reset(client);
            writes.add(channel.writeAndFlush(sent));
        });
        assertFails(writes, "reset");
        assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        assertEquals(0, sent.refCnt());
    }

    /** As it does where the loop finds out: the end is told behind the bytes. */
    @Test
    void aFlushThatFindsTheConnectionResetLosesNothingThatWasReceived() throws Exception {
        expectBytesBeforeTheReset(Channel::read, "reset");
    }

    /** What nobody has asked for yet: it is handed on before the end is, whoever finds that. */
    @Test
    void aFlushThatFindsTheConnectionResetLosesNothingThatWaitsToBeRead() throws Exception {
        expectBytesBeforeTheReset(waiting -> {}, "");
    }

    private void expectBytesBeforeTheReset(Consumer<Channel> asking, String message) throws Exception {
        byte[] bytes = Peers.bytes(100);
        Socket client = Peers.connect(server);
        QuoitSocketChannel channel = accepted.next(client);
        run(channel, () -> {
            channel.config().setAutoRead(false);
            asking.accept(channel);
        });
        client.getOutputStream().write(bytes);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (group.submit(() -> channel.handler().leases().outstanding()).get() == 0) {
            assertTrue(System.nanoTime() < end, "the bytes did not come");
        }
        List<ChannelFuture> writes = new ArrayList<>();
        run(channel, () -> {
            reset(client);
            writes.add(channel.writeAndFlush(Peers.direct(new byte[100_000])));
        });
        run(channel, channel::read);
        ByteBuf received = keeper.message();
        byte[] copy = new byte[bytes.length];
        received.readBytes(copy).release();
        assertArrayEquals(bytes, copy);
        channel.config().setAutoRead(true);
        assertFails(writes, message);
        assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private static void reset(Socket client) {
        try {
            client.setSoLinger(true, 0);
            client.close();
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Of a Unix socket, one direction alone can be gone. */
    @Test
    void aFlushToAPeerThatReceivesNoMoreIsABrokenPipe(@TempDir Path folder) throws Exception {
        SocketAddress address = UnixDomainSocketAddress.of(folder.resolve("socket"));
        Peers.serve(group, QuoitServerDomainSocketChannel.class, accepted, address);
        try (SocketChannel client = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            client.connect(address);
            Channel channel = accepted.next();
            channel.writeAndFlush(Peers.direct(new byte[1])).sync();
            client.read(ByteBuffer.allocate(1));
            client.shutdownInput();
            ByteBuf sent = Peers.direct(new byte[100_000]);
            List<ChannelFuture> writes = List.of(channel.writeAndFlush(sent));
            assertFails(writes, "Broken pipe");
            assertEquals(0, sent.refCnt());
        }
    }

    private static void assertFails(List<ChannelFuture> writes, String message) throws Exception {
        for (ChannelFuture write : writes) {
            assertTrue(write.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertFalse(write.isSuccess());
        }
        Throwable cause = writes.get(0).cause();
        assertNotNull(cause.getMessage(), cause.toString());
        assertTrue(cause.getMessage().contains(message), cause.toString());
        assertInstanceOf(SocketException.class, cause);
    }
}
