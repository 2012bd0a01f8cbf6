package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SingleThreadEventLoop;
import io.netty.util.concurrent.Promise;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What can be seen where connections end: each on Netty's epoll first, and the same on this transport. */
class EndsTest {
    private static final int ROUNDS = 20;
    /** What a server has written when it closes; the kernel has room for all of it. */
    private static final int LAST_BYTES = 400 << 10;

    /** Of a write that is lent here: too long to be copied, and too short for a call of its own. */
    private static final int LENT_BYTES = 4 << 10;
    /** Of a write that waits here for the one before it, and has room in what is kept of a closed channel's queue. */
    private static final int BEHIND_BYTES = 150_000;

    private static final int SHORT_BYTES = 500;
    /** More than the kernel and the loop take of a connection whose peer reads nothing. */
    private static final int MUCH = 2 << 20;

    /** How long a close goes on with a peer that takes nothing. */
    private static final long CLOSE_NANOS = 500_000_000;
    /** How often, and how much, a slow peer reads: the kernel opens its window a few times within the above. */
    private static final long STEP_NANOS = CLOSE_NANOS / 5;

    private static final int STEP_BYTES = 32 << 10;

    private EventLoopGroup group;

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private ServerBootstrap server(Side side, QuoitIoHandlerConfig config) {
        group = side.group(config);
        return side.bootstrap(group);
    }

    /**
     * How many connections of this network the kernel has given up as their reset came before the last packet of the handshake,
     * so that there was nothing to accept (TcpExtEmbryonicRsts of netstat(8)).
     */
    private static long resetBeforeAccept() throws Exception {
        List<String> lines = Files.readAllLines(Path.of("/proc/net/netstat"));
        int at = List.of(lines.get(0).split(" ")).indexOf("EmbryonicRsts");
        return Long.parseLong(lines.get(1).split(" ")[at]);
    }

    /** Connections that are in the listener's queue, and reset, when the server comes to them. */
    @ParameterizedTest
    @EnumSource
    void theAddressOfAPeerThatHasResetIsKnown(Side side) throws Exception {
        BlockingQueue<Optional<SocketAddress>> seen = new LinkedBlockingQueue<>();
        ChannelHandler handler = new ChannelInboundHandlerAdapter() {
            @Override
            public boolean isSharable() {
                return true;
            }

            @Override
            public void handlerAdded(ChannelHandlerContext context) {
                seen.add(Optional.ofNullable(context.channel().remoteAddress()));
            }
        };
        for (String host : new String[] {"127.0.0.1", "::1"}) {
            Channel server = server(side, UnderTest.config())
                    .option(ChannelOption.AUTO_READ, false)
                    .childHandler(handler)
                    .bind(host, 0)
                    .sync()
                    .channel();
            List<SocketAddress> peers = new ArrayList<>();
            long before = resetBeforeAccept();
            for (int round = 0; round < ROUNDS; round++) {
                try (SocketChannel peer = SocketChannel.open(server.localAddress())) {
                    peers.add(peer.getLocalAddress());
                    peer.setOption(StandardSocketOptions.SO_LINGER, 0);
                }
            }
            // One that stays says when all others have been seen.
            List<Optional<SocketAddress>> accepted = new ArrayList<>();
            try (SocketChannel stays = SocketChannel.open(server.localAddress())) {
                Optional<SocketAddress> last = Optional.of(stays.getLocalAddress());
                stays.write(ByteBuffer.wrap(new byte[1]));
                server.config().setAutoRead(true);
                for (; ; ) {
                    Optional<SocketAddress> next = seen.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
                    assertNotNull(next, "the last one was not accepted");
                    if (next.equals(last)) {
                        break;
                    }
                    accepted.add(next);
                }
            }
            long lost = resetBeforeAccept() - before;
            assertTrue(accepted.size() + lost >= ROUNDS, accepted.size() + " were accepted, " + lost + " given up");
            assertEquals(
                    peers.stream().map(Optional::of).filter(accepted::contains).toList(), accepted);
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** A peer that reads late gets what was written before the close: the kernel has it. */
    @ParameterizedTest
    @EnumSource
    void whatWasWrittenBeforeACloseReachesAPeerThatReadsLate(Side side) throws Exception {
        byte[] last = Peers.bytes(LAST_BYTES);
        Channel server = server(side, UnderTest.config().withCloseDeadline(1_000_000))
                .childOption(ChannelOption.SO_SNDBUF, 2 * LAST_BYTES)
                .childHandler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public boolean isSharable() {
                        return true;
                    }

                    @Override
                    public void channelActive(ChannelHandlerContext context) {
                        context.writeAndFlush(Unpooled.wrappedBuffer(last)).addListener(ChannelFutureListener.CLOSE);
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (Socket peer = Peers.connectNarrow(server)) {
            awaitGone(server);
            assertArrayEquals(last, Peers.read(peer, LAST_BYTES));
            assertEquals(-1, peer.getInputStream().read());
        }
    }

    /** The same where one write waited for another when the channel was closed, and so its connection's end for both. */
    @ParameterizedTest
    @EnumSource
    void whatWaitedBeforeACloseReachesAPeerThatReadsLate(Side side) throws Exception {
        byte[] last = Peers.bytes(LENT_BYTES + BEHIND_BYTES);
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = server(side, UnderTest.config().withCloseDeadline(CLOSE_NANOS))
                .childOption(ChannelOption.SO_SNDBUF, 2 * LAST_BYTES)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (Socket peer = Peers.connectNarrow(server)) {
            Channel channel = established(accepted, peer);
            channel.eventLoop()
                    .submit(() -> {
                        channel.writeAndFlush(Peers.direct(Arrays.copyOf(last, LENT_BYTES)));
                        channel.writeAndFlush(Peers.direct(Arrays.copyOfRange(last, LENT_BYTES, last.length)));
                        channel.close();
                    })
                    .sync();
            awaitGone(server);
            Peers.assertReceivesAll(peer, last);
        }
    }

    /**
     * A channel is closed behind a long flush and a short one, and its peer reads slowly. It sees no reset, and here gets all;
     * Netty's epoll sends what the kernel has of it.
     */
    @ParameterizedTest
    @EnumSource
    void aPeerThatReadsSlowlyIsNotResetBehindALongFlush(Side side) throws Exception {
        byte[] bytes = Peers.bytes(MUCH / 2);
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = narrowServer(side, accepted);
        try (Socket peer = Peers.connectNarrow(server)) {
            Channel channel = established(accepted, peer);
            channel.eventLoop()
                    .submit(() -> {
                        channel.writeAndFlush(Peers.direct(Arrays.copyOf(bytes, bytes.length - SHORT_BYTES)));
                        channel.writeAndFlush(Peers.direct(
                                Arrays.copyOfRange(bytes, bytes.length - SHORT_BYTES, bytes.length)));
                        channel.close();
                    })
                    .sync();
            byte[] received = readSlowly(peer);
            assertArrayEquals(side == Side.OURS ? bytes : Arrays.copyOf(bytes, received.length), received);
        }
    }

    /** The same behind short flushes, of which the last was done and has no room here. */
    @ParameterizedTest
    @EnumSource
    void aPeerThatReadsSlowlyIsNotResetBehindShortFlushes(Side side) throws Exception {
        byte[] bytes = Peers.bytes(MUCH);
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = narrowServer(side, accepted);
        try (Socket peer = Peers.connectNarrow(server)) {
            Channel channel = established(accepted, peer);
            int done = fill(channel, bytes);
            channel.close().sync();
            byte[] received = readSlowly(peer);
            assertTrue(received.length >= done, received.length + " bytes of " + done + " came");
            assertArrayEquals(Arrays.copyOf(bytes, received.length), received);
        }
    }

    /** It is reset when it takes nothing for as long as a close waits. */
    @Test
    void aPeerThatReadsNothingIsResetBehindShortFlushes() throws Exception {
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = narrowServer(Side.OURS, accepted);
        try (Socket peer = Peers.connectNarrow(server)) {
            Channel channel = established(accepted, peer);
            fill(channel, new byte[MUCH]);
            channel.close().sync();
            awaitGone(server);
            assertThrows(SocketException.class, () -> peer.getInputStream().readAllBytes());
        }
    }

    /** A group ends, and a peer has not taken what was written: if it does not get what was done, it sees that it does not. */
    @ParameterizedTest
    @EnumSource
    void aGroupThatEndsDoesNotCutShortWhatWasWritten(Side side) throws Exception {
        byte[] bytes = Peers.bytes(MUCH);
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = narrowServer(side, accepted);
        try (Socket peer = Peers.connectNarrow(server)) {
            int done = fill(established(accepted, peer), bytes);
            group.shutdownGracefully(1, 5_000, TimeUnit.MILLISECONDS).sync();
            byte[] received;
            try {
                received = peer.getInputStream().readAllBytes();
            } catch (SocketException reset) {
                assertEquals(Side.OURS, side, "Netty's epoll resets");
                return;
            }
            assertTrue(received.length >= done, received.length + " bytes of " + done + " came, and then the end");
            assertArrayEquals(Arrays.copyOf(bytes, received.length), received);
        }
    }

    /** The channel of this peer's connection, once its loop has that. */
    private static Channel established(Peers.Accepted accepted, Socket peer) throws Exception {
        Channel channel = accepted.next();
        channel.writeAndFlush(Peers.direct(new byte[1])).sync();
        Peers.read(peer, 1);
        return channel;
    }

    private Channel narrowServer(Side side, Peers.Accepted accepted) throws Exception {
        return server(side, UnderTest.config().withCloseDeadline(CLOSE_NANOS))
                .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    /**
     * Writes short messages, each flushed in a run of the loop of its own, until the kernel and the loop have no room and some
     * wait. Returns the bytes of those that are done.
     */
    private static int fill(Channel channel, byte[] bytes) throws Exception {
        SingleThreadEventLoop loop = (SingleThreadEventLoop) channel.eventLoop();
        List<ChannelFuture> written = new ArrayList<>();
        for (int at = 0; channel.isWritable(); at += SHORT_BYTES) {
            byte[] next = Arrays.copyOfRange(bytes, at, at + SHORT_BYTES);
            Promise<ChannelFuture> write = loop.newPromise();
            loop.execute(() -> {
                ChannelFuture flushed = channel.writeAndFlush(Peers.direct(next));
                loop.executeAfterEventLoopIteration(() -> write.setSuccess(flushed));
            });
            written.add(write.get());
        }
        return SHORT_BYTES * (int) written.stream().filter(ChannelFuture::isSuccess).count();
    }

    /**
     * Reads until the end: a little at a time at first, until a close that were given up when its time is over would be. That is
     * done on the loop's thread: what keeps the reader from reading keeps the loop from looking after it.
     */
    private byte[] readSlowly(Socket peer) throws Exception {
        InputStream in = peer.getInputStream();
        List<Future<byte[]>> steps = new ArrayList<>();
        for (long after = 0; after < 2 * CLOSE_NANOS; after += STEP_NANOS) {
            steps.add(group.next().schedule(
                    () -> in.readNBytes(Math.min(in.available(), STEP_BYTES)), after, TimeUnit.NANOSECONDS));
        }
        ByteArrayOutputStream received = new ByteArrayOutputStream();
        for (Future<byte[]> step : steps) {
            received.writeBytes(step.get());
        }
        received.writeBytes(in.readAllBytes());
        return received.toByteArray();
    }

    /**
     * As in a proxy: a read for each write that has left, into a peer that takes nothing. It resets behind more than was read:
     * the write fails, and with it the channel ends, though nobody reads any more.
     */
    @ParameterizedTest
    @EnumSource
    void aWriteThatFailsEndsAChannelThatIsNotRead(Side side) throws Exception {
        BlockingQueue<Channel> accepted = new LinkedBlockingQueue<>();
        BlockingQueue<Boolean> outcomes = new LinkedBlockingQueue<>();
        Channel server = server(side, UnderTest.config())
                .childOption(ChannelOption.AUTO_READ, false)
                .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES)
                .childHandler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public boolean isSharable() {
                        return true;
                    }

                    @Override
                    public void channelActive(ChannelHandlerContext context) {
                        accepted.add(context.channel());
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (Socket peer = Peers.connectNarrow(server)) {
            Channel channel = accepted.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
            peer.getOutputStream().write(new byte[40_000]);
            // More than both sockets take, and less than the loop does.
            channel.writeAndFlush(Unpooled.wrappedBuffer(new byte[600_000]))
                    .addListener(written -> outcomes.add(written.isSuccess()));
            peer.setSoLinger(true, 0);
            peer.close();
            assertEquals(Boolean.FALSE, outcomes.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    /** Waits until the server's loop has accepted the connection, and does not have it any more. */
    private static void awaitGone(Channel server) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (isHeld(server) && System.nanoTime() < end) {
            Thread.onSpinWait();
        }
    }

    /** Whether the server's loop has not accepted the connection yet, or still has it. */
    private static boolean isHeld(Channel server) {
        if (!(server instanceof AbstractQuoitServerChannel ours)) {
            return false;
        }
        QuoitLoopSnapshot loop = ours.handler().metrics().snapshot();
        return loop.value("accepted") == 0 || loop.value("connections") > 0;
    }
}
