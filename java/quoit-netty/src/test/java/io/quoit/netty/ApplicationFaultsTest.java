package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.socket.DatagramPacket;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Promise;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What applications do in the midst of a completion, and what fails them: nobody else, and no byte in silence. */
class ApplicationFaultsTest {
    private static final int PIECE = 1000;
    /** More than is copied. */
    private static final int LENT = 4000;
    /** Of the library's queue. */
    private static final int MARK = 8 << 10;

    private EventLoopGroup group;
    private final Peers.Keeper keeper = new Peers.Keeper();
    private final Peers.Accepted accepted = new Peers.Accepted(channel -> channel.pipeline()
            .addLast(keeper)
            .addLast(new ChannelInboundHandlerAdapter() {
                @Override
                public void channelActive(ChannelHandlerContext context) {
                    atStart.accept(context);
                }
            }));
    private volatile Consumer<ChannelHandlerContext> atStart = context -> {};
    private final Memory memory = new Memory();

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    /** Memory for buffers that may come to an end. */
    private static final class Memory extends AbstractByteBufAllocator {
        volatile boolean spent;

        Memory() {
            super(true);
        }

        @Override
        protected ByteBuf newHeapBuffer(int initial, int most) {
            return Unpooled.buffer(initial, most);
        }

        @Override
        protected ByteBuf newDirectBuffer(int initial, int most) {
            if (spent) {
                throw new OutOfMemoryError("as the test wants it");
            }
            return Unpooled.directBuffer(initial, most);
        }

        @Override
        public boolean isDirectBufferPooled() {
            return false;
        }
    }

    private Channel serve(QuoitIoHandlerConfig config, UnaryOperator<ServerBootstrap> options) throws Exception {
        group = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        ServerBootstrap bootstrap = new ServerBootstrap()
                .group(group)
                .channel(QuoitServerSocketChannel.class)
                .childOption(ChannelOption.ALLOCATOR, memory);
        return options.apply(bootstrap)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    private void assertTheLoopLives() throws Exception {
        group.submit(() -> {}).get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /** Each message is written and flushed by the listener of the one before, thousands in one run of the loop. */
    @Test
    void aChainOfWritesIsNoRecursion() throws Exception {
        Channel server = serve(UnderTest.config(), bootstrap -> bootstrap);
        byte[] bytes = Peers.bytes(4000);
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next(client);
            Promise<Void> done = channel.eventLoop().newPromise();
            ChannelFutureListener next = new ChannelFutureListener() {
                private int at;

                @Override
                public void operationComplete(ChannelFuture before) {
                    if (!before.isSuccess()) {
                        done.tryFailure(before.cause());
                    } else if (at == bytes.length) {
                        done.trySuccess(null);
                    } else {
                        channel.write(Peers.direct(new byte[] {bytes[at++]})).addListener(this);
                        channel.flush();
                    }
                }
            };
            channel.eventLoop().execute(() -> channel.newSucceededFuture().addListener(next));
            assertArrayEquals(bytes, Peers.read(client, bytes.length));
            done.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }

    /** Small flushes are copied, and refused once the library's queue is full: with a low mark of 0, until it is empty. */
    private static QuoitIoHandlerConfig narrow() {
        return QuoitIoHandlerConfig.defaults().withEngine(UnderTest.ENGINE).withOutboundWaterMarks(0, MARK);
    }

    /** Writes one piece in each run of the loop until one has to wait, because one before it was refused; returns the bytes. */
    private byte[] fill(QuoitSocketChannel channel) throws Exception {
        EventLoop loop = channel.eventLoop();
        Promise<Integer> full = loop.newPromise();
        byte[] all = Peers.bytes(16 << 20);
        loop.execute(new Runnable() {
            private int at;

            @Override
            public void run() {
                ChannelFuture write = channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(all, at, at + PIECE)));
                at += PIECE;
                if (write.isSuccess()) {
                    loop.schedule(this, 0, TimeUnit.NANOSECONDS);
                } else {
                    full.setSuccess(at);
                }
            }
        });
        return Arrays.copyOf(all, full.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private Channel serveNarrow() throws Exception {
        return serve(narrow(), bootstrap -> bootstrap
                .childOption(ChannelOption.AUTO_READ, false)
                .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES));
    }

    /** What comes until the connection ends, in whatever way. */
    private static byte[] readToTheEnd(Socket client) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        try {
            client.getInputStream().transferTo(all);
        } catch (IOException reset) {
            return all.toByteArray();
        }
        return all.toByteArray();
    }

    @Test
    void aConnectionThatEndsWhileRefusedBytesAreSentAgainIsTheOnlyOneToEnd() throws Exception {
        Channel server = serveNarrow();
        try (Socket client = Peers.connectNarrow(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            EventLoop loop = channel.eventLoop();
            fill(channel);
            loop.execute(new Runnable() {
                @Override
                public void run() {
                    // Nothing else on this loop gives it a command.
                    if (channel.handler().commands().count() == 0) {
                        loop.schedule(this, 0, TimeUnit.NANOSECONDS);
                    } else {
                        channel.config().setSoLinger(0);
                        channel.close();
                    }
                }
            });
            readToTheEnd(client);
            channel.closeFuture().sync();
            assertTheLoopLives();
        }
    }

    @Test
    void refusedBytesThatCannotBeKeptEndTheirConnection() throws Exception {
        Channel server = serveNarrow();
        try (Socket client = Peers.connectNarrow(server)) {
            QuoitSocketChannel channel = accepted.next(client);
            memory.spent = true;
            byte[] written = fill(channel);
            byte[] got = readToTheEnd(client);
            assertTrue(got.length < written.length);
            assertArrayEquals(Arrays.copyOf(written, got.length), got);
            channel.closeFuture().sync();
            assertTheLoopLives();
        }
    }

    /** What is refused in the run of a close has failed, and then nothing behind it may be sent: the stream would have a hole. */
    @Test
    void nothingFollowsWhatIsRefusedInTheRunOfAClose() throws Exception {
        Channel server = serveNarrow();
        for (boolean whole : new boolean[] {true, false}) {
            // The kernel may take more in the last moment, and then nothing is refused.
            long refused = refusals(server);
            for (int round = 0; round < 20 && refusals(server) == refused; round++) {
                try (Socket client = Peers.connectNarrow(server)) {
                    QuoitSocketChannel channel = accepted.next(client);
                    byte[] written = fillToTheMark(channel, LENT + PIECE);
                    ByteArrayOutputStream got = new ByteArrayOutputStream();
                    int filled = written.length - LENT - PIECE;
                    group.submit(() -> {
                                channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(written, filled, filled + LENT)));
                                channel.writeAndFlush(
                                        Peers.direct(Arrays.copyOfRange(written, filled + LENT, written.length)));
                                if (whole) {
                                    channel.close();
                                } else {
                                    channel.shutdownOutput();
                                }
                                // The next turn refuses the first and then finds room for the second.
                                while (client.getInputStream().available() > 0) {
                                    got.write(client.getInputStream().readNBytes(client.getInputStream().available()));
                                }
                                return null;
                            })
                            .sync();
                    client.getInputStream().transferTo(got);
                    byte[] all = got.toByteArray();
                    assertTrue(all.length >= filled, all.length + " of " + filled);
                    assertArrayEquals(Arrays.copyOf(written, all.length), all);
                }
            }
            assertTrue(refusals(server) > refused, "nothing was refused");
        }
    }

    /** Writes until the library's queue is at its mark, and nothing was refused yet; returns the bytes, and more. */
    private byte[] fillToTheMark(QuoitSocketChannel channel, int more) throws Exception {
        EventLoop loop = channel.eventLoop();
        Promise<Integer> full = loop.newPromise();
        byte[] all = Peers.bytes(16 << 20);
        loop.execute(new Runnable() {
            private int at;

            @Override
            public void run() {
                // None of it is still in the batch.
                if (channel.handler().commands().count() == 0) {
                    int room = (int) (MARK - channel.handler().queuedBytes());
                    if (room == 0) {
                        full.setSuccess(at);
                        return;
                    }
                    int length = Math.min(room, PIECE);
                    channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(all, at, at + length)));
                    at += length;
                }
                loop.schedule(this, 0, TimeUnit.NANOSECONDS);
            }
        });
        return Arrays.copyOf(all, full.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS) + more);
    }

    private static long refusals(Channel server) throws Exception {
        QuoitIoHandler handler = ((AbstractQuoitChannel) server).handler();
        // A turn ends before, and with it the figures are told.
        return server.eventLoop()
                .submit(() -> handler.metrics().snapshot().metrics().stream()
                        .filter(metric -> metric.name().equals("sends_refused"))
                        .mapToLong(QuoitMetric::value)
                        .sum())
                .get();
    }

    /** Other transports have given the kernel each flush when the close comes. */
    @Test
    void flushesAreSentThoughTheChannelIsClosedAtOnce(@TempDir Path folder) throws Exception {
        Channel server = serve(UnderTest.config(), bootstrap -> bootstrap);
        byte[] bytes = Peers.bytes(9000);
        Path file = folder.resolve("file");
        Files.write(file, Arrays.copyOfRange(bytes, 3010, 5000));
        for (boolean whole : new boolean[] {true, false}) {
            try (Socket client = Peers.connect(server)) {
                Channel channel = accepted.next(client);
                group.submit(() -> {
                            channel.writeAndFlush(Peers.direct(Arrays.copyOf(bytes, 3000)));
                            channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(bytes, 3000, 3010)));
                            channel.writeAndFlush(new DefaultFileRegion(file.toFile(), 0, 1990));
                            channel.write(Peers.direct(Arrays.copyOfRange(bytes, 5000, 8000)));
                            channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(bytes, 8000, 9000)));
                            // Not flushed.
                            channel.write(Peers.direct(new byte[100]));
                            if (whole) {
                                channel.close();
                            } else {
                                ((QuoitSocketChannel) channel).shutdownOutput();
                            }
                        })
                        .sync();
                // With small limits, no more than the high-water mark behind what is under way.
                byte[] got = client.getInputStream().readAllBytes();
                int least = UnderTest.SMALL ? 3000 + (4 << 10) : bytes.length;
                assertTrue(got.length >= least, "only " + got.length);
                assertArrayEquals(Arrays.copyOf(bytes, got.length), got);
            }
        }
    }

    @Test
    void whatAnAcceptedChannelSendsFirstIsSentThoughItIsClosedAtOnce() throws Exception {
        byte[] bytes = Peers.bytes(3000);
        Channel server = serve(UnderTest.config(), bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, true));
        for (boolean whole : new boolean[] {true, false}) {
            atStart = context -> {
                context.writeAndFlush(Peers.direct(bytes));
                if (whole) {
                    context.close();
                } else {
                    ((QuoitSocketChannel) context.channel()).shutdownOutput();
                }
            };
            try (Socket client = Peers.connect(server)) {
                Peers.assertReceivesAll(client, bytes);
            }
        }
    }

    /** All of them are on their way when the first one's listener closes: each goes once. */
    @Test
    void whatIsOnItsWayWhenAListenerClosesIsNotSentAgain() throws Exception {
        Channel server = serve(UnderTest.config(), bootstrap -> bootstrap);
        // Copied, lent, and given to the kernel in the midst of the flush; with small limits, all below the high-water mark.
        for (int length : UnderTest.SMALL ? new int[] {100, 1000} : new int[] {100, 1000, 1200, 5000}) {
            byte[] bytes = Peers.bytes(4 * length);
            try (Socket client = Peers.connect(server)) {
                Channel channel = accepted.next(client);
                group.submit(() -> {
                            for (int at = 0; at < bytes.length; at += length) {
                                ChannelFuture write =
                                        channel.write(Peers.direct(Arrays.copyOfRange(bytes, at, at + length)));
                                if (at == 0) {
                                    write.addListener(ChannelFutureListener.CLOSE);
                                }
                            }
                            channel.flush();
                        })
                        .sync();
                Peers.assertReceivesAll(client, bytes);
            }
        }
    }

    /** Received bytes that there is no buffer for: the stream must not go on without them. */
    @Test
    void bytesThatCannotBeHandedOnCloseTheirConnection() throws Exception {
        expectTheEndWithoutMemory(bootstrap -> bootstrap);
    }

    @Test
    void bytesThatDoNotGetABufferOfTheUsersAllocatorCloseTheirConnection() throws Exception {
        expectTheEndWithoutMemory(bootstrap ->
                bootstrap.childOption(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(7)));
    }

    private void expectTheEndWithoutMemory(UnaryOperator<ServerBootstrap> options) throws Exception {
        Channel server = serve(UnderTest.config().withLeasesPerConnection(2), options);
        try (Socket client = Peers.connect(server);
                Socket other = Peers.connect(server)) {
            client.getOutputStream().write(1);
            // Held, so that the next is copied.
            ByteBuf first = keeper.message();
            memory.spent = true;
            client.getOutputStream().write(2);
            assertInstanceOf(OutOfMemoryError.class, keeper.event());
            assertEquals("inactive", keeper.event());
            assertEquals(-1, client.getInputStream().read());
            first.release();
            memory.spent = false;
            other.getOutputStream().write(3);
            ByteBuf second = keeper.message();
            assertEquals(3, second.getByte(0));
            second.release();
        }
    }

    /** On Netty's epoll transport first, which reads again; here that datagram is lost, and the channel goes on as well. */
    @Test
    void aDatagramThatGetsNoBufferIsToldOf() throws Exception {
        for (Stock stock : new Stock[] {Stock.EPOLL, null}) {
            group = Scene.group(stock);
            memory.spent = true;
            BlockingQueue<Object> told = new LinkedBlockingQueue<>();
            Channel channel = new Bootstrap()
                    .group(group)
                    .channelFactory(() -> stock == null ? new QuoitDatagramChannel() : stock.datagram(null))
                    .option(ChannelOption.ALLOCATOR, memory)
                    .option(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(7))
                    .handler(new ChannelInboundHandlerAdapter() {
                        @Override
                        public void channelRead(ChannelHandlerContext context, Object message) {
                            told.add(message);
                        }

                        @Override
                        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
                            memory.spent = false;
                            told.add(cause);
                        }
                    })
                    .bind(new InetSocketAddress("127.0.0.1", 0))
                    .sync()
                    .channel();
            try (DatagramSocket peer = new DatagramSocket()) {
                peer.send(new java.net.DatagramPacket(new byte[1], 1, channel.localAddress()));
                assertInstanceOf(OutOfMemoryError.class, told.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS), "" + stock);
                peer.send(new java.net.DatagramPacket(new byte[2], 2, channel.localAddress()));
                DatagramPacket next = (DatagramPacket) told.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
                assertEquals(stock == null ? 2 : 1, next.content().readableBytes());
                next.release();
                channel.close().sync();
            }
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            for (Object rest : told) {
                ReferenceCountUtil.release(rest);
            }
        }
    }

    /** As a proxy does it: off because of something that happened on another channel. */
    @Test
    void nothingComesAfterAutoReadWasTurnedOffBetweenMessages() throws Exception {
        Channel server = serve(UnderTest.config(), bootstrap -> bootstrap);
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            client.getOutputStream().write(1);
            keeper.message().release();
            group.submit(() -> channel.config().setAutoRead(false)).sync();
            client.getOutputStream().write(2);
            // Behind it, so that when this has come, that would have.
            try (Socket other = Peers.connect(server)) {
                other.getOutputStream().write(3);
                ByteBuf message = keeper.message();
                assertEquals(3, message.getByte(0));
                message.release();
                assertTheLoopLives();
                assertTrue(keeper.messages.isEmpty(), "a message came that nobody had asked for");
            }
            channel.config().setAutoRead(true);
            ByteBuf message = keeper.message();
            assertEquals(2, message.getByte(0));
            message.release();
            assertFalse(keeper.events.stream().anyMatch(Throwable.class::isInstance));
        }
    }
}
