package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.io.IOException;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * No peer keeps others from being served, whatever it does: as on Netty's own transport, which each is tried on first, and
 * with everything given back afterwards.
 */
class FairnessTest {
    /** What a loop holds for connections: nothing, once they have gone. */
    private static final List<String> HELD =
            List.of("pool_leased", "leases_copied_now", "pipeline_slots", "queued_bytes", "send_chunks_used");

    private static final int KERNEL_BYTES = 16 << 10;

    /** What connections begin with that are answered without end, and those of which all is kept. */
    private static final byte ENDLESS = 'e';

    private static final byte KEPT = 'k';

    private static final ByteBuf STREAM = Unpooled.unreleasableBuffer(Peers.direct(Peers.bytes(32 << 10)));

    /**
     * Of a connection whose peer is gone, and of which the loop holds back what came before that, the end waits for a handler
     * to read; so long at most.
     */
    private static final long CLOSE_NANOS = 100_000_000;

    private QuoitIoHandlerConfig config = UnderTest.config().withCloseDeadline(CLOSE_NANOS);

    private EventLoopGroup group;
    private Channel server;
    /** The server's connections. */
    private final ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
    /** Why writes failed. */
    private final Queue<Throwable> failures = new ConcurrentLinkedQueue<>();

    /** What a handler has kept. */
    private final Queue<ByteBuf> kept = new ConcurrentLinkedQueue<>();

    private final List<SocketChannel> rude = new ArrayList<>();
    /** The one that behaves, on the same loop. */
    private Socket good;

    @AfterEach
    void end() throws Exception {
        leave();
        good.close();
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private void serve(Side side, Supplier<ChannelHandler> handler) throws Exception {
        serve(side, handler, FairnessTest::narrow);
    }

    /** So that little is in the kernel's hands, and what matters is what the process holds. */
    private static ServerBootstrap narrow(ServerBootstrap bootstrap) {
        return bootstrap
                .childOption(ChannelOption.SO_SNDBUF, KERNEL_BYTES)
                .childOption(ChannelOption.SO_RCVBUF, KERNEL_BYTES);
    }

    private void serve(Side side, Supplier<ChannelHandler> handler, UnaryOperator<ServerBootstrap> options)
            throws Exception {
        group = side.group(config);
        ServerBootstrap bootstrap = side.bootstrap(group)
                .childHandler(new Peers.Accepted(channel -> {
                    connections.add(channel);
                    channel.pipeline().addLast(handler.get());
                }));
        server = options.apply(bootstrap).bind("127.0.0.1", 0).sync().channel();
        good = Peers.connectNarrow(server);
    }

    // ---- peers ----

    /** Peers that take and send nothing while this thread does not, and whose kernel takes little of what they do not read. */
    private void connectRude(int count) throws IOException {
        for (int connected = 0; connected < count; connected++) {
            SocketChannel peer = SocketChannel.open();
            peer.setOption(StandardSocketOptions.SO_RCVBUF, KERNEL_BYTES);
            peer.setOption(StandardSocketOptions.SO_SNDBUF, KERNEL_BYTES);
            peer.connect(server.localAddress());
            peer.configureBlocking(false);
            rude.add(peer);
        }
    }

    /** Each sends until no more is taken of it, but no more than so many bytes; returns how many bytes all have sent. */
    private long flood(byte[] piece, int most) {
        long all = 0;
        for (SocketChannel peer : rude) {
            long taken;
            long sent = 0;
            do {
                taken = write(peer, piece);
                sent += taken;
            } while (taken > 0 && sent < most);
            all += sent;
        }
        return all;
    }

    private static int write(SocketChannel peer, byte[] piece) {
        try {
            return peer.write(ByteBuffer.wrap(piece));
        } catch (IOException closed) {
            // By the server.
            return 0;
        }
    }

    /** All of them go, with a reset. */
    private void leave() throws IOException {
        for (SocketChannel peer : rude) {
            peer.setOption(StandardSocketOptions.SO_LINGER, 0);
            peer.close();
        }
        rude.clear();
    }

    /** The one that behaves is answered. */
    private void assertServed() throws Exception {
        for (int length : new int[] {17, 30_000}) {
            byte[] request = Peers.bytes(length);
            good.getOutputStream().write(request);
            assertArrayEquals(request, Peers.read(good, length));
        }
    }

    /** When the others have gone, the server knows it, and holds nothing of theirs. */
    private void assertAllIsGivenBack() throws Exception {
        leave();
        // Figures are told at the end of a turn.
        awaits("all is given back", () -> connections.size() == 1 && held() == 0);
        for (Throwable failure : failures) {
            assertInstanceOf(IOException.class, failure);
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    /** What is sure to become so, while others are served. */
    private void awaits(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (!condition.holds()) {
            assertServed();
            assertTrue(System.nanoTime() < end, () -> what + ": " + connections + holding());
        }
    }

    /** As above, where there is no other. */
    private void awaitsQuietly(Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (!condition.holds()) {
            assertTrue(System.nanoTime() < end, this::holding);
            Thread.onSpinWait();
        }
    }

    /** A figure of the server's loop; Netty's own have none, and hold nothing of this library's. */
    private long figure(String name) {
        return server instanceof AbstractQuoitServerChannel ours
                ? ours.handler().metrics().snapshot().value(name)
                : 0;
    }

    private String holding() {
        return HELD.stream().map(name -> name + "=" + figure(name)).toList().toString();
    }

    private long held() {
        return HELD.stream().mapToLong(this::figure).sum();
    }

    // ---- handlers ----

    /** Sends back what comes. */
    private class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            write(context, message);
        }

        final void write(ChannelHandlerContext context, Object message) {
            context.write(message).addListener(done -> {
                if (!done.isSuccess()) {
                    failures.add(done.cause());
                    // As most users have it.
                    context.close();
                }
            });
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }

    /** As users are told to write it: who does not read is not read from. */
    private class PoliteEcho extends Echo {
        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            context.channel().config().setAutoRead(context.channel().isWritable());
        }
    }

    /** Treats those connections otherwise whose first byte is a certain one; the others have an echo. */
    private abstract class Other extends PoliteEcho {
        private final byte mark;
        private boolean began;
        boolean marked;

        Other(byte mark) {
            this.mark = mark;
        }

        abstract void read(ChannelHandlerContext context, ByteBuf bytes);

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf bytes = (ByteBuf) message;
            if (!began) {
                began = true;
                marked = bytes.getByte(bytes.readerIndex()) == mark;
            }
            if (marked) {
                read(context, bytes);
            } else {
                super.channelRead(context, message);
            }
        }
    }

    /** Sends without end, as fast as it is read, to whoever begins with {@link #ENDLESS}. */
    private final class Streamer extends Other {
        Streamer() {
            super(ENDLESS);
        }

        @Override
        void read(ChannelHandlerContext context, ByteBuf bytes) {
            bytes.release();
            fill(context);
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            if (marked) {
                fill(context);
            } else {
                super.channelWritabilityChanged(context);
            }
        }

        private void fill(ChannelHandlerContext context) {
            while (context.channel().isWritable()) {
                context.write(STREAM.duplicate(), context.voidPromise());
            }
            context.flush();
        }
    }

    /** Keeps what those send that begin with {@link #KEPT}. */
    private final class Hoarder extends Other {
        Hoarder() {
            super(KEPT);
        }

        @Override
        void read(ChannelHandlerContext context, ByteBuf bytes) {
            kept.add(bytes);
        }
    }

    /** Sends more than the loop takes of one connection to whoever begins with {@link #ENDLESS}, and reads no more of it. */
    private final class Sender extends Other {
        private final int length;

        Sender(int length) {
            super(ENDLESS);
            this.length = length;
        }

        @Override
        void read(ChannelHandlerContext context, ByteBuf bytes) {
            bytes.release();
            context.channel().config().setAutoRead(false);
            for (int written = 0; written < length; written += STREAM.readableBytes()) {
                write(context, STREAM.duplicate());
            }
        }
    }

    // ---- the tests ----

    @ParameterizedTest
    @EnumSource(Side.class)
    void peersThatSendAndNeverReadAreHeldBack(Side side) throws Exception {
        serve(side, PoliteEcho::new);
        for (byte[] piece : List.of(Peers.bytes(65_536), Peers.bytes(94))) {
            connectRude(40);
            long sent;
            do {
                sent = flood(piece, 1 << 20);
                assertServed();
            } while (sent > 0);
            assertAllIsGivenBack();
        }
    }

    /** A handler that writes whatever {@code isWritable} says has it all in its own queue, and no other waits for it. */
    @ParameterizedTest
    @EnumSource(Side.class)
    void whoWritesOnRegardlessQueuesInTheProcess(Side side) throws Exception {
        int pieces = 32;
        byte[] piece = Peers.bytes(16 << 10);
        serve(side, Echo::new);
        connectRude(10);
        for (SocketChannel peer : rude) {
            ByteBuffer rest = ByteBuffer.allocate(pieces * piece.length);
            awaits("all of it is taken", () -> {
                peer.write(rest);
                return !rest.hasRemaining();
            });
        }
        awaits("nobody but the one that reads may write", () -> connections.stream().filter(Channel::isWritable).count() == 1);
        assertEquals(List.of(), List.copyOf(failures));
        assertAllIsGivenBack();
        assertFalse(failures.isEmpty(), "writes that never left have succeeded");
    }

    /** What this transport has beside: writes past a limit fail, and say why. */
    @Test
    void whoWritesOnPastALimitIsTold() throws Exception {
        int count = 10;
        serve(
                Side.OURS,
                Echo::new,
                bootstrap -> narrow(bootstrap).childOption(QuoitChannelOption.PENDING_WRITE_LIMIT, 256L << 10));
        connectRude(count);
        awaits("they are accepted", () -> connections.size() > count);
        awaits("they are closed", () -> {
            flood(Peers.bytes(16 << 10), 1 << 20);
            return connections.size() == 1;
        });
        assertTrue(
                failures.stream().filter(PendingWritesException.class::isInstance).count() >= count,
                () -> failures.toString());
        failures.removeIf(PendingWritesException.class::isInstance);
        assertAllIsGivenBack();
    }

    @ParameterizedTest
    @EnumSource(Side.class)
    void readersThatStopHoldUpNobody(Side side) throws Exception {
        serve(side, Streamer::new);
        connectRude(100);
        flood(new byte[] {ENDLESS}, 1);
        for (int request = 0; request < 20; request++) {
            assertServed();
        }
        assertAllIsGivenBack();
    }

    @ParameterizedTest
    @EnumSource(Side.class)
    void aReaderThatIsNeverDoneHoldsUpNobody(Side side) throws Exception {
        serve(side, Streamer::new, bootstrap -> bootstrap);
        try (Socket fast = Peers.connect(server)) {
            fast.getOutputStream().write(ENDLESS);
            AtomicLong read = new AtomicLong();
            Thread reader = new Thread(() -> {
                byte[] room = new byte[1 << 20];
                try {
                    for (int count; (count = fast.getInputStream().read(room)) >= 0; ) {
                        read.addAndGet(count);
                    }
                } catch (IOException closed) {
                    // The test has closed it.
                }
            });
            reader.start();
            awaits("it has a lot", () -> read.get() > 100 << 20);
            for (int request = 0; request < 20; request++) {
                assertServed();
            }
            long before = read.get();
            awaits("it goes on", () -> read.get() > before);
            fast.close();
            reader.join();
        }
        assertAllIsGivenBack();
    }

    /** More beginnings of requests than the pool has slots. */
    @ParameterizedTest
    @EnumSource(Side.class)
    void whatHandlersKeepHoldsUpNobody(Side side) throws Exception {
        serve(side, Hoarder::new);
        connectRude(200);
        byte[] piece = Peers.bytes(94);
        piece[0] = KEPT;
        for (int round = 0; round < 3; round++) {
            flood(piece, 1);
            assertServed();
        }
        awaits(
                "all of it has come",
                () -> kept.stream().mapToInt(ByteBuf::readableBytes).sum() == 200 * 3 * piece.length);
        assertServed();
        kept.forEach(ByteBuf::release);
        assertAllIsGivenBack();
    }

    /** While much waits to be sent, and somebody is held back, peers that take nothing have to go; those that read have not. */
    @Test
    void whoTakesNothingIsClosedWhileMemoryIsShort() throws Exception {
        int large = 8 << 20;
        config = config.withOutboundWaterMarks(64 << 10, large).withStallLimit(0);
        serve(Side.OURS, () -> new Sender(2 * large));
        connectRude(6);
        flood(new byte[] {ENDLESS}, 1);
        awaits("they are served", () -> connections.size() > 6);
        awaits("one is closed", () -> {
            // Of which nobody wants to know: so the connection is paused, and looked after.
            flood(new byte[] {ENDLESS}, 1);
            return !failures.isEmpty();
        });
        awaits("it is counted", () -> figure("stalled_closed") > 0);
        for (Throwable failure : failures) {
            assertTrue(failure.getMessage().contains("its peer took nothing"), failure::toString);
        }
        assertAllIsGivenBack();
    }

    // ---- peers that go while somebody waits for them ----

    /**
     * A handler reads when its channel is writable, and it is that never again: its peer has gone. What was received before
     * and waits to be read does not keep such a channel open.
     */
    @ParameterizedTest
    @EnumSource(Side.class)
    void aResetEndsAChannelThatIsNotReadBecauseItsWritesWait(Side side) throws Exception {
        for (boolean before : new boolean[] {true, false}) {
            Peers.Keeper keeper = new Peers.Keeper();
            serve(side, () -> keeper, bootstrap -> narrow(bootstrap).childOption(ChannelOption.AUTO_READ, false));
            awaitsQuietly(() -> connections.size() == 1);
            Channel channel = connections.iterator().next();
            channel.read();
            good.getOutputStream().write(1);
            keeper.message().release();
            // That of which nobody wants to know is held by the transport, or by the kernel.
            good.getOutputStream().write(2);
            awaitsQuietly(() -> side == Side.STOCK || held() > 0);
            ChannelFuture write = null;
            for (int count = 0; before && count < 100; count++) {
                write = channel.writeAndFlush(STREAM.duplicate());
            }
            good.setOption(StandardSocketOptions.SO_LINGER, 0);
            good.close();
            if (!before) {
                awaitsQuietly(() -> side == Side.STOCK ? !channel.isOpen() : figure("closed_reset") > 0);
                write = channel.writeAndFlush(STREAM.duplicate());
            }
            assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS), "it stays open");
            assertInstanceOf(IOException.class, write.await().cause());
            // Netty's may hand it on at the last moment.
            keeper.messages.forEach(ByteBuf::release);
            awaitsQuietly(() -> held() == 0);
            end();
        }
    }

    // ---- water marks ----

    /** What a handler is told while it writes pieces, and when they have left. */
    private List<Object> toldWhileWriting(Side side, WriteBufferWaterMark marks, int piece) throws Exception {
        List<Object> told = new ArrayList<>();
        CountDownLatch writable = new CountDownLatch(1);
        serve(side, () -> new PoliteEcho() {
            @Override
            public void channelWritabilityChanged(ChannelHandlerContext context) {
                if (context.channel().isWritable()) {
                    writable.countDown();
                }
            }
        });
        assertServed();
        Channel channel = connections.iterator().next();
        int bytes = group.submit(() -> {
                    if (marks != null) {
                        channel.config().setWriteBufferWaterMark(marks);
                    }
                    told.add(channel.bytesBeforeUnwritable());
                    int written = 0;
                    for (; channel.isWritable(); written += piece) {
                        channel.write(Peers.direct(new byte[piece]));
                        told.add(channel.bytesBeforeUnwritable());
                    }
                    told.add(written);
                    if (marks != null) {
                        told.add(channel.bytesBeforeWritable());
                    }
                    channel.flush();
                    return written;
                })
                .get();
        Peers.read(good, bytes);
        assertTrue(writable.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS), "it was not told that it may write again");
        end();
        connections.clear();
        return told;
    }

    @Test
    void writabilityChangesAtTheSameBytesAsElsewhere() throws Exception {
        for (int piece : new int[] {1, 1000, 100_000}) {
            for (WriteBufferWaterMark marks :
                    new WriteBufferWaterMark[] {null, WriteBufferWaterMark.DEFAULT, new WriteBufferWaterMark(1000, 30_000)}) {
                assertEquals(toldWhileWriting(Side.STOCK, marks, piece), toldWhileWriting(Side.OURS, marks, piece));
            }
        }
    }
}
