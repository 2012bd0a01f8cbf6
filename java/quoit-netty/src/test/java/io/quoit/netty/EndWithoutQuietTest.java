package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.unix.UnixChannel;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** A group that one of its own tasks shuts down without a quiet period, which Netty's loops then do not tell their I/O of. */
class EndWithoutQuietTest {
    /** Tells what it is told, and keeps received bytes until it is removed, as decoders do. */
    private static final class Keeper extends ChannelInboundHandlerAdapter {
        private final List<String> told = new CopyOnWriteArrayList<>();
        private final CompletableFuture<ByteBuf> kept = new CompletableFuture<>();

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            kept.complete((ByteBuf) message);
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            told.add("inactive");
        }

        @Override
        public void channelUnregistered(ChannelHandlerContext context) {
            told.add("unregistered");
        }

        @Override
        public void handlerRemoved(ChannelHandlerContext context) {
            told.add("removed");
            kept.join().release();
        }
    }

    /** What its handler is told, whether the channel is open when the group has ended, and how often the bytes are held. */
    private static String end(Stock stock) throws Exception {
        EventLoopGroup group = Scene.group(stock);
        Class<? extends ServerChannel> type = stock == null ? QuoitServerSocketChannel.class : stock.serverClass;
        Keeper keeper = new Keeper();
        CompletableFuture<Channel> accepted = new CompletableFuture<>();
        Channel server = new ServerBootstrap()
                .group(group)
                .channel(type)
                .childHandler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public void channelActive(ChannelHandlerContext context) {
                        context.pipeline().addLast(keeper);
                        accepted.complete(context.channel());
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (Socket peer = new Socket("127.0.0.1", ((InetSocketAddress) server.localAddress()).getPort())) {
            peer.getOutputStream().write(1);
            ByteBuf bytes = keeper.kept.get(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
            Channel channel = accepted.join();
            channel.eventLoop().execute(() -> group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            group.terminationFuture().sync();
            String end = keeper.told + ", open " + channel.isOpen() + ", bytes held " + bytes.refCnt();
            if (channel.isOpen()) {
                bytes.release();
                ((UnixChannel) channel).fd().close();
                ((UnixChannel) server).fd().close();
            }
            return end;
        }
    }

    /** Netty's own loops leave such channels open, and tell nobody: here they are closed as behind a quiet period. */
    @Test
    void itsChannelsAreClosedAndTheirHandlersToldOfIt() throws Exception {
        assertEquals("[], open true, bytes held 1", end(Stock.EPOLL));
        assertEquals("[inactive, unregistered, removed], open false, bytes held 0", end(null));
    }
}
