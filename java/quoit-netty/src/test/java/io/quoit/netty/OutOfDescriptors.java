package io.quoit.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * A process with a low limit of descriptors, which {@link DescriptorsTest} starts: it has none left when somebody connects, and
 * some later. It prints what the server's channel was told. Its arguments: {@code STOCK}, or the engine.
 */
final class OutOfDescriptors {
    private static final Trace TRACE = new Trace();

    private OutOfDescriptors() {}

    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        boolean stock = arguments[0].equals("STOCK");
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(
                1,
                stock
                        ? Stock.EPOLL.factory()
                        : QuoitIoHandler.newFactory(
                                QuoitIoHandlerConfig.defaults().withEngine(QuoitEngine.valueOf(arguments[0]))));
        Peers.Accepted accepted = new Peers.Accepted(child -> child.pipeline().addLast(new Peers.Echo()));
        Channel server = new ServerBootstrap()
                .group(group)
                .channel(stock ? Stock.EPOLL.serverClass : QuoitServerSocketChannel.class)
                .handler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) throws Exception {
                        TRACE.add("exception " + Trace.kind(cause));
                        super.exceptionCaught(context, cause);
                        TRACE.add("autoRead " + context.channel().config().isAutoRead());
                    }
                })
                .childHandler(accepted)
                .bind(new InetSocketAddress("127.0.0.1", 0))
                .sync()
                .channel();
        // What an exception needs is loaded while there are descriptors for the files of its classes.
        server.pipeline().fireExceptionCaught(new IOException("the first"));
        TRACE.await("autoRead false");
        while (!server.config().isAutoRead()) {
            Thread.onSpinWait();
        }
        // Likewise.
        Errno.exception("accept", Errno.EMFILE);
        Deque<FileInputStream> files = new ArrayDeque<>();
        exchange(SocketChannel.open(), server);
        accepted.next();
        SocketChannel late = SocketChannel.open();
        takeAll(files);
        late.connect(server.localAddress());
        TRACE.await("autoRead false", 2);
        while (!files.isEmpty()) {
            files.pop().close();
        }
        exchange(late, server);
        accepted.next();
        TRACE.add("accepted, open " + server.isOpen() + ", autoRead " + server.config().isAutoRead());
        // Behind what was told to load classes.
        System.out.println("told: " + TRACE.steps().subList(2, TRACE.steps().size()));
    }

    private static void takeAll(Deque<FileInputStream> files) {
        try {
            while (true) {
                files.push(new FileInputStream("/dev/null"));
            }
        } catch (IOException none) {
            // As intended.
        }
    }

    /** A byte there and back. */
    private static void exchange(SocketChannel peer, Channel server) throws IOException {
        if (!peer.isConnected()) {
            peer.connect(server.localAddress());
        }
        peer.write(ByteBuffer.wrap(new byte[1]));
        if (peer.read(ByteBuffer.allocate(1)) != 1) {
            throw new AssertionError("nothing came back");
        }
    }
}
