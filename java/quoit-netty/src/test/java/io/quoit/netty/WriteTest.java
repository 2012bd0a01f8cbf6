package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.SocketChannel;
import java.io.ByteArrayOutputStream;
import java.io.RandomAccessFile;
import java.net.Socket;
import java.net.SocketException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is sent: every kind of buffer, in order, bounded, and ended in every way. */
class WriteTest {
    private final EventLoopGroup group = UnderTest.group(1);
    private final Peers.Keeper keeper = new Peers.Keeper();
    private final Peers.Accepted accepted = new Peers.Accepted(channel -> channel.pipeline().addLast(keeper));
    private Channel server;

    @BeforeEach
    void serve() throws Exception {
        server = new ServerBootstrap()
                .group(group)
                .channel(QuoitServerSocketChannel.class)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    @Test
    void everyKindOfBufferLeavesInOrder() throws Exception {
        byte[] bytes = Peers.bytes(120_000);
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            List<ByteBuf> sent = new ArrayList<>();
            int at = 0;
            for (int kind = 0; at < bytes.length; kind++) {
                int length = Math.min(1 + kind * 37 % 5000, bytes.length - at);
                ByteBuf part = Unpooled.wrappedBuffer(bytes, at, length);
                ByteBuf message =
                        switch (kind % 5) {
                            case 0 -> part;
                            case 1 -> channel.alloc().directBuffer().writeBytes(part);
                            case 2 -> Unpooled.compositeBuffer()
                                    .addComponent(true, part.copy(0, length / 2))
                                    .addComponent(
                                            true,
                                            channel.alloc().directBuffer().writeBytes(part, length / 2, length - length / 2));
                            case 3 -> channel.alloc()
                                    .directBuffer()
                                    .writeBytes(part)
                                    .writeByte(0)
                                    .slice(0, length);
                            default -> Unpooled.unreleasableBuffer(part).asReadOnly();
                        };
                sent.add(message);
                if (kind % 3 == 0) {
                    channel.writeAndFlush(message);
                } else {
                    channel.write(message);
                }
                if (kind % 11 == 0) {
                    channel.writeAndFlush(Unpooled.EMPTY_BUFFER);
                }
                at += length;
            }
            ChannelFuture last = channel.writeAndFlush(Unpooled.EMPTY_BUFFER);
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
            last.sync();
        }
    }

    @Test
    void writesCancelledBeforeTheirFlushAreLeftOutAndNoOtherIsSentTwice() throws Exception {
        // Copied, and too long for that.
        for (int length : new int[] {10, 40_000}) {
            try (Socket client = Peers.connect(server)) {
                Channel channel = accepted.next();
                ByteArrayOutputStream expected = new ByteArrayOutputStream();
                List<ByteBuf> cancelled = new ArrayList<>();
                channel.eventLoop()
                        .submit(() -> {
                            // Every pattern of four writes; the second half of them is flushed behind the first one.
                            for (int pattern = 0; pattern < 16; pattern++) {
                                for (int write = 0; write < 4; write++) {
                                    byte[] bytes = new byte[length];
                                    Arrays.fill(bytes, (byte) (pattern * 4 + write));
                                    ByteBuf message = Unpooled.directBuffer(length).writeBytes(bytes);
                                    ChannelFuture future = channel.write(message);
                                    if ((pattern & 1 << write) == 0) {
                                        expected.writeBytes(bytes);
                                    } else {
                                        assertTrue(future.cancel(false));
                                        cancelled.add(message);
                                    }
                                    if (write % 2 == 1) {
                                        channel.flush();
                                    }
                                }
                            }
                        })
                        .sync();
                assertArrayEquals(expected.toByteArray(), Peers.read(client, expected.size()));
                channel.close().sync();
                assertEquals(-1, client.getInputStream().read());
                assertTrue(cancelled.stream().allMatch(message -> message.refCnt() == 0));
            }
        }
    }

    @Test
    void responsesOfAKeptConnectionAreNeverLost() throws Exception {
        Peers.Accepted echoes = new Peers.Accepted(channel -> channel.pipeline().addLast(new Peers.Echo()));
        Channel echo = new ServerBootstrap()
                .group(group)
                .channel(QuoitServerSocketChannel.class)
                .childHandler(echoes)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (Socket client = Peers.connect(echo)) {
            byte[] request = Peers.bytes(100);
            for (int round = 0; round < 5000; round++) {
                client.getOutputStream().write(request);
                assertArrayEquals(request, Peers.read(client, request.length));
            }
        }
    }

    @Test
    void aFileLongerThanTwoGibibytesIsSentFromItsEnd(@TempDir Path folder) throws Exception {
        long length = (3L << 30) + 17;
        byte[] end = Peers.bytes(100_000);
        Path path = folder.resolve("sparse");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(length);
            file.seek(length - end.length);
            file.write(end);
        }
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            channel.write(Unpooled.wrappedBuffer(new byte[] {1}));
            channel.write(new DefaultFileRegion(path.toFile(), length - end.length, end.length));
            ChannelFuture last = channel.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {2}));
            assertArrayEquals(new byte[] {1}, Peers.read(client, 1));
            assertArrayEquals(end, Peers.read(client, end.length));
            assertArrayEquals(new byte[] {2}, Peers.read(client, 1));
            last.sync();
        }
    }

    /** Netty's io_uring transport splices, which io_uring hands to worker threads, thousands of them under load. */
    @Test
    void filesAreSentWithoutThreadsOfTheKernels(@TempDir Path folder) throws Exception {
        byte[] bytes = Peers.bytes(2 << 20);
        Path path = Files.write(folder.resolve("file"), bytes);
        for (int round = 0; round < 4; round++) {
            try (Socket client = Peers.connect(server)) {
                ChannelFuture sent =
                        accepted.next().writeAndFlush(new DefaultFileRegion(path.toFile(), 0, bytes.length));
                assertArrayEquals(bytes, Peers.read(client, bytes.length));
                sent.sync();
            }
        }
        try (Stream<Path> threads = Files.list(Path.of("/proc/self/task"))) {
            List<String> names = new ArrayList<>();
            for (Path thread : threads.toList()) {
                names.add(Files.readString(thread.resolve("comm")).strip());
            }
            assertTrue(names.stream().noneMatch(name -> name.startsWith("iou-wrk")), names.toString());
        }
    }

    /** A region whose length does not fit into 31 bits: nothing but zeros, and marks at its end and around 2 GiB. */
    @Test
    @Tag("slow")
    void aRegionOfMoreThanTwoGibibytesIsSentWhole(@TempDir Path folder) throws Exception {
        long length = (2L << 30) + 100_000;
        long[] marks = {0, (2L << 30) - 1, 2L << 30, length - 1};
        Path path = folder.resolve("sparse");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(length);
            for (long mark : marks) {
                file.seek(mark);
                file.write((int) (mark % 100) + 1);
            }
        }
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            DefaultFileRegion region = new DefaultFileRegion(path.toFile(), 0, length);
            ChannelFuture sent = channel.writeAndFlush(region);
            byte[] zeros = new byte[1 << 20];
            byte[] part = new byte[1 << 20];
            long received = 0;
            while (received < length) {
                int count = client.getInputStream().read(part);
                assertTrue(count > 0, "the end came after " + received);
                for (long mark : marks) {
                    if (mark >= received && mark < received + count) {
                        int at = (int) (mark - received);
                        assertEquals(mark % 100 + 1, part[at], "at " + mark);
                        part[at] = 0;
                    }
                }
                assertEquals(-1, Arrays.mismatch(part, 0, count, zeros, 0, count), "a byte behind " + received);
                received += count;
            }
            sent.sync();
            assertEquals(length, region.transferred());
            assertEquals(0, client.getInputStream().available());
        }
    }

    /** Of what is copied, the promise is done at once; of what is lent, the time until the kernel has it is told. */
    @Test
    void writesAndFlushesAreCountedBySize() throws Exception {
        byte[] small = Peers.bytes(50);
        byte[] large = Peers.bytes(200_000);
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = (QuoitSocketChannel) accepted.next();
            channel.writeAndFlush(Peers.direct(small)).sync();
            assertArrayEquals(small, Peers.read(client, small.length));
            // With small limits nothing is copied.
            assertEquals(UnderTest.SMALL ? 1 : 0, channel.snapshot().flushes());
            ChannelFuture sent = channel.writeAndFlush(Peers.direct(large));
            assertArrayEquals(large, Peers.read(client, large.length));
            sent.sync();
            QuoitLoopSnapshot loop = group.submit(() -> channel.handler().metrics().snapshot()).get();
            QuoitChannelSnapshot own = channel.snapshot();
            assertEquals(small.length + large.length, loop.histogram("write_bytes").sum());
            // 32 to 63 bytes.
            assertEquals(1, loop.histogram("write_bytes").counts().get(6));
            assertEquals(own.writes(), loop.histogram("write_pieces").count());
            assertEquals(own.writtenPieces(), loop.histogram("write_pieces").sum());
            assertTrue(own.flushes() >= 1 && own.longestFlushNanos() > 0, own.toString());
            QuoitHistogram flushes = loop.histogram("flush_nanos");
            assertEquals(own.flushes(), flushes.count());
            assertEquals(own.flushNanos(), flushes.sum());
            assertTrue(flushes.percentile(1) >= own.longestFlushNanos(), own + ": " + flushes);
            assertTrue(loop.histogram("turn_commands").sum() >= own.writes(), loop.toString());
            assertEquals(loop.histogram("turn_events").count(), loop.histogram("turn_commands").count());
        }
    }

    /** What an enter brought is counted at the next. */
    @Test
    void entersAreCountedByWhatTheyCarry() throws Exception {
        try (Socket client = Peers.connect(server)) {
            accepted.next().writeAndFlush(Peers.direct(Peers.bytes(50))).sync();
            Peers.read(client, 50);
            QuoitLoopSnapshot loop = group.submit(() -> ((QuoitServerSocketChannel) server).handler().metrics().snapshot())
                    .get();
            assertEquals(loop.value("enters"), loop.histogram("enter_submissions").count());
            assertEquals(loop.value("enters") - 1, loop.histogram("enter_completions").count());
            assertEquals(loop.value("submissions"), loop.histogram("enter_submissions").sum());
            assertEquals(loop.value("completions"), loop.histogram("enter_completions").sum());
            assertEquals(10, loop.histogram("enter_completions").counts().size());
            assertTrue(loop.metrics().stream().noneMatch(metric -> metric.name().startsWith("enters_")), loop.toString());
        }
    }

    /** As answers to pipelined requests are: more than is copied of one message, and less than lending them would cost. */
    @Test
    void aFlushOfSmallMessagesLeavesAsOnePiece() throws Exception {
        byte[] bytes = Peers.bytes(64 * 256);
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = (QuoitSocketChannel) accepted.next();
            // So that the loop has the connection.
            channel.writeAndFlush(Peers.direct(new byte[1])).sync();
            Peers.read(client, 1);
            long before = channel.snapshot().flushes();
            group.submit(() -> {
                        for (int at = 0; at < bytes.length; at += 256) {
                            channel.write(Peers.direct(Arrays.copyOfRange(bytes, at, at + 256)));
                        }
                        ChannelFuture last = channel.writeAndFlush(Unpooled.EMPTY_BUFFER);
                        // Copied: nobody has to wait for the kernel.
                        assertEquals(!UnderTest.SMALL, last.isSuccess());
                    })
                    .get();
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
            assertTrue(UnderTest.SMALL || channel.snapshot().flushes() == before, channel.snapshot().toString());
            // Larger messages are lent.
            channel.write(Peers.direct(Arrays.copyOf(bytes, 2000)));
            channel.writeAndFlush(Peers.direct(Arrays.copyOf(bytes, 2000))).sync();
            Peers.read(client, 4000);
            assertTrue(channel.snapshot().flushes() > before, channel.snapshot().toString());
        }
    }

    @Test
    void percentilesAreTrueToAPowerOfTwo() {
        Histogram histogram = new Histogram("test", "of a test");
        assertEquals(0, histogram.snapshot().percentile(0.5));
        for (long value : new long[] {0, 1, 2, 3, 4, 1000, Long.MAX_VALUE}) {
            histogram.add(value);
        }
        QuoitHistogram all = histogram.snapshot();
        assertEquals(List.of(1L, 1L, 2L, 1L), all.counts().subList(0, 4));
        assertEquals(7, all.count());
        assertEquals(3, all.percentile(0.5));
        assertEquals(1023, all.percentile(0.85));
        assertEquals(QuoitHistogram.most(all.counts().size() - 1), all.percentile(1));
        assertThrows(IllegalArgumentException.class, () -> all.percentile(Double.NaN));
    }

    @Test
    void writesPastTheLimitFailAndTheRestArrives() throws Exception {
        long limit = 1 << 20;
        byte[] piece = Peers.bytes(64 << 10);
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            channel.config().setOption(QuoitChannelOption.PENDING_WRITE_LIMIT, limit);
            channel.config().setWriteBufferWaterMark(new WriteBufferWaterMark(1 << 10, 128 << 10));
            List<ChannelFuture> writes = new ArrayList<>();
            ChannelFuture refused = null;
            // Nobody reads, and the kernel holds some megabytes.
            for (int written = 0; refused == null && written < 2000; written++) {
                // On the loop, which frees room otherwise between the refusal and the look at it.
                ChannelFuture write = group.submit(() -> {
                            ChannelFuture done = channel.writeAndFlush(Peers.direct(piece));
                            assertFalse(done.cause() != null && channel.isWritable(), "refused though writable");
                            return done;
                        })
                        .get();
                writes.add(write);
                if (write.isDone() && !write.isSuccess()) {
                    refused = write;
                }
            }
            assertNotNull(refused, "the limit was never reached");
            assertInstanceOf(PendingWritesException.class, refused.cause());
            assertTrue(((QuoitSocketChannel) channel).snapshot().pendingBytes() <= limit + piece.length + 1024);
            for (int write = 0; write < writes.size() - 1; write++) {
                assertArrayEquals(piece, Peers.read(client, piece.length));
            }
            for (ChannelFuture write : writes.subList(0, writes.size() - 1)) {
                write.sync();
            }
            // On the loop, which makes room after it has told the last write's end.
            assertTrue(group.submit(channel::isWritable).get());
        }
    }

    /** The next send begins when all of this one has left: who writes while he may has filled the queue anew by then. */
    @Test
    void sendsOfAHandlerThatFillsTheQueueAreAsLongAsTheQueueMayBe() throws Exception {
        byte[] piece = Peers.bytes(1 << 10);
        int pieces = 4096;
        try (Socket client = Peers.connect(server)) {
            QuoitSocketChannel channel = (QuoitSocketChannel) accepted.next();
            Filler filler = new Filler(piece, pieces);
            channel.pipeline().addLast(filler);
            group.submit(() -> filler.channelWritabilityChanged(channel.pipeline().lastContext())).sync();
            for (int read = 0; read < pieces; read++) {
                assertArrayEquals(piece, Peers.read(client, piece.length));
            }
            QuoitChannelSnapshot done = group.submit(channel::snapshot).get();
            // With small limits a send is no longer than those of the library.
            long least = UnderTest.SMALL ? UnderTest.config().highWater() : 50 << 10;
            assertTrue(done.writtenBytes() >= done.writes() * least, done.toString());
        }
    }

    /** Writes as long as the channel is writable, and flushes. */
    private static final class Filler extends ChannelInboundHandlerAdapter {
        private final byte[] piece;
        private int left;

        Filler(byte[] piece, int pieces) {
            this.piece = piece;
            left = pieces;
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            while (left > 0 && context.channel().isWritable()) {
                left--;
                context.write(Peers.direct(piece));
            }
            context.flush();
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void whoSetsOneWaterMarkHasNettysDefaultForTheOther() {
        QuoitSocketChannelConfig config = new QuoitSocketChannel().config();
        assertEquals(64 << 10, config.getWriteBufferHighWaterMark());
        assertEquals(60 << 10, config.getWriteBufferLowWaterMark());
        // Less than the low mark that there was.
        config.setOption(ChannelOption.WRITE_BUFFER_HIGH_WATER_MARK, 40 << 10);
        assertEquals(40 << 10, config.getWriteBufferHighWaterMark());
        assertEquals(32 << 10, config.getWriteBufferLowWaterMark());
        assertThrows(IllegalArgumentException.class, () -> config.setWriteBufferHighWaterMark(1));
        config.setWriteBufferWaterMark(new WriteBufferWaterMark(5, 50));
        config.setWriteBufferHighWaterMark(60);
        assertEquals(5, config.getWriteBufferLowWaterMark());
        ChannelConfig unix = new QuoitDomainSocketChannel().config();
        unix.setWriteBufferLowWaterMark(1 << 10);
        assertEquals(64 << 10, unix.getWriteBufferHighWaterMark());
    }

    /** Copied sends are refused once the native queue is full: what was promised to be sent waits, and the close for it. */
    @Test
    void smallFlushesToAPeerThatReadsLateArriveInOrder() throws Exception {
        int piece = 1000;
        byte[] bytes = Peers.bytes(1000 * piece);
        try (Socket client = Peers.connectNarrow(server)) {
            Channel channel = accepted.next();
            channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
            for (int at = 0; at < bytes.length; at += piece) {
                ByteBuf message = channel.alloc().directBuffer().writeBytes(bytes, at, piece);
                boolean last = at + piece == bytes.length;
                // A run of the loop each, so that nothing is gathered.
                group.submit(() -> {
                            ChannelFuture write = channel.writeAndFlush(message);
                            if (last) {
                                write.addListener(ChannelFutureListener.CLOSE);
                            }
                        })
                        .sync();
            }
            Peers.assertReceivesAll(client, bytes);
        }
    }

    /** Copied and lent, in long and short flushes, to a peer that reads late: pieces are refused and go again. */
    @Test
    void messagesOfAllSizesToAPeerThatReadsLateArriveInOrder() throws Exception {
        byte[] bytes = Peers.bytes(3 << 20);
        try (Socket client = Peers.connectNarrow(server)) {
            Channel channel = accepted.next();
            channel.config().setOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES);
            int[] sizes = {1, 100, 1500, 40, 9000, 700, 2048, 2049, 33};
            int at = 0;
            for (int number = 0; at < bytes.length; number++) {
                int from = at;
                int count = number % 400 + 1;
                int size = sizes[number % sizes.length];
                int end = Math.min(bytes.length, from + count * size);
                at = end;
                boolean last = end == bytes.length;
                group.submit(() -> {
                            for (int next = from; next < end; ) {
                                int length = Math.min(next % 7 == 0 ? 3000 : size, end - next);
                                channel.write(channel.alloc().directBuffer().writeBytes(bytes, next, length));
                                next += length;
                            }
                            ChannelFuture write = channel.writeAndFlush(Unpooled.EMPTY_BUFFER);
                            if (last) {
                                write.addListener(ChannelFutureListener.CLOSE);
                            }
                        })
                        .sync();
            }
            Peers.assertReceivesAll(client, bytes);
        }
    }

    @Test
    void closeAfterAWriteLosesNothing() throws Exception {
        for (int length : new int[] {1, 1000, 100_000, 3 << 20}) {
            byte[] bytes = Peers.bytes(length);
            try (Socket client = Peers.connect(server)) {
                accepted.next().writeAndFlush(Peers.direct(bytes)).addListener(ChannelFutureListener.CLOSE);
                Peers.assertReceivesAll(client, bytes);
            }
        }
    }

    @Test
    void shutdownOutputWithWritesInFlightKeepsTheirMemory() throws Exception {
        byte[] bytes = Peers.bytes(8 << 20);
        try (Socket client = Peers.connect(server)) {
            SocketChannel channel = (SocketChannel) accepted.next();
            ByteBuf sent = Peers.direct(bytes);
            ChannelFuture write = channel.writeAndFlush(sent);
            // The write is in the kernel's hands, which has no room for all of it.
            assertArrayEquals(java.util.Arrays.copyOf(bytes, 10), Peers.read(client, 10));
            ChannelFuture shutdown = channel.shutdownOutput();
            shutdown.sync();
            assertTrue(sent.refCnt() > 0 || write.isSuccess(), "memory in flight was freed");
            byte[] rest = client.getInputStream().readAllBytes();
            assertArrayEquals(java.util.Arrays.copyOfRange(bytes, 10, 10 + rest.length), rest);
            client.getOutputStream().write(5);
            ByteBuf answer = keeper.message();
            assertEquals(5, answer.readByte());
            answer.release();
            assertFalse(channel.isInputShutdown());
            channel.close().sync();
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            assertEquals(0, sent.refCnt());
        }
    }

    @Test
    void lingerOfZeroResets() throws Exception {
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            channel.config().setOption(ChannelOption.SO_LINGER, 0);
            channel.close().sync();
            SocketException failure = null;
            try {
                assertEquals(-2, client.getInputStream().read(), "the end of the stream came without a reset");
            } catch (SocketException reset) {
                failure = reset;
            }
            assertTrue(failure.getMessage().contains("reset"), failure.getMessage());
        }
    }

    @Test
    void aResetByThePeerIsToldAndFailsWhatWaits() throws Exception {
        Socket client = Peers.connect(server);
        Channel channel = accepted.next();
        ChannelFuture write = channel.writeAndFlush(Peers.direct(new byte[64 << 20]));
        Peers.read(client, 10);
        client.setSoLinger(true, 0);
        client.close();
        assertTrue(write.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertFalse(write.isSuccess());
        assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }
}
