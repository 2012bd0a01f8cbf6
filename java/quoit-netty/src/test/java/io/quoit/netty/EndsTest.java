package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What can be seen where connections end: each on Netty's epoll first, and the same on this transport. */
class EndsTest {
    private static final int ROUNDS = 20;
    /** What a server has written when it closes; the kernel has room for all of it. */
    private static final int LAST_BYTES = 400 << 10;

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
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
            while (isHeld(server) && System.nanoTime() < end) {
                Thread.onSpinWait();
            }
            assertArrayEquals(last, Peers.read(peer, LAST_BYTES));
            assertEquals(-1, peer.getInputStream().read());
        }
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

    /** Whether the server's loop has not accepted the connection yet, or still has it. */
    private static boolean isHeld(Channel server) {
        if (!(server instanceof AbstractQuoitServerChannel ours)) {
            return false;
        }
        QuoitLoopSnapshot loop = ours.handler().metrics().snapshot();
        return loop.value("accepted") == 0 || loop.value("connections") > 0;
    }
}
