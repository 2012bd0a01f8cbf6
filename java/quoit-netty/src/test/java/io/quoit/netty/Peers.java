package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Handlers and plain sockets for tests. */
final class Peers {
    /** How long something may take that is sure to happen. */
    static final int PATIENCE_SECONDS = 20;

    private Peers() {}

    /** Bytes that differ from place to place. */
    static byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    static ByteBuf direct(byte[] bytes) {
        return Unpooled.directBuffer(bytes.length).writeBytes(bytes);
    }

    /** A connected plain socket of the JDK's. */
    static Socket connect(Channel server) throws Exception {
        Socket socket = new Socket();
        socket.setSoTimeout(PATIENCE_SECONDS * 1000);
        socket.connect(new InetSocketAddress("127.0.0.1", ((InetSocketAddress) server.localAddress()).getPort()));
        return socket;
    }

    /** Of the kernel's buffers, where what is written shall not fit into them. */
    static final int NARROW_BYTES = 64 << 10;

    /** A peer whose kernel takes little of what it does not read. */
    static Socket connectNarrow(Channel server) throws Exception {
        Socket client = new Socket();
        client.setReceiveBufferSize(NARROW_BYTES);
        client.setSoTimeout(PATIENCE_SECONDS * 1000);
        client.connect(server.localAddress());
        return client;
    }

    static byte[] read(Socket socket, int length) throws Exception {
        InputStream in = socket.getInputStream();
        return in.readNBytes(length);
    }

    /** Writes on a thread of its own, for a peer that is held back. */
    static Thread writing(Socket socket, byte[] bytes) {
        Thread writer = new Thread(() -> {
            try {
                socket.getOutputStream().write(bytes);
            } catch (IOException closed) {
                throw new UncheckedIOException(closed);
            }
        });
        writer.start();
        return writer;
    }

    /** Everything comes, and then the end. */
    static void assertReceivesAll(Socket socket, byte[] bytes) throws Exception {
        assertArrayEquals(bytes, read(socket, bytes.length));
        assertEquals(-1, socket.getInputStream().read());
    }

    /** Sends back what comes. */
    static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }
    }

    /** A server on a free port of loopback, with a handler of its own for each connection. */
    static Channel serve(EventLoopGroup group, java.util.function.Supplier<? extends ChannelHandler> handler) {
        return serve(group, QuoitServerSocketChannel.class, each(handler), new InetSocketAddress("127.0.0.1", 0));
    }

    /** A server of this type, with a handler that its connections share. */
    static Channel serve(
            EventLoopGroup group, Class<? extends ServerChannel> type, ChannelHandler handler, SocketAddress address) {
        return new ServerBootstrap()
                .group(group)
                .channel(type)
                .childHandler(handler)
                .bind(address)
                .syncUninterruptibly()
                .channel();
    }

    static ChannelInitializer<Channel> each(java.util.function.Supplier<? extends ChannelHandler> handler) {
        return new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel channel) {
                channel.pipeline().addLast(handler.get());
            }
        };
    }

    /** Hands on the channels that become active. */
    static final class Accepted extends ChannelInitializer<Channel> {
        private final BlockingQueue<Channel> channels = new LinkedBlockingQueue<>();
        private final java.util.function.Consumer<Channel> prepare;

        Accepted(java.util.function.Consumer<Channel> prepare) {
            this.prepare = prepare;
        }

        Accepted() {
            this(channel -> {});
        }

        @Override
        protected void initChannel(Channel channel) {
            prepare.accept(channel);
            channels.add(channel);
        }

        Channel next() throws InterruptedException {
            Channel channel = channels.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (channel == null) {
                throw new AssertionError("no connection was accepted");
            }
            return channel;
        }

        /** The channel of this client's connection, once the loop has it. */
        QuoitSocketChannel next(Socket client) throws Exception {
            QuoitSocketChannel channel = (QuoitSocketChannel) next();
            channel.writeAndFlush(direct(new byte[1])).sync();
            read(client, 1);
            return channel;
        }

        boolean isEmpty() {
            return channels.isEmpty();
        }
    }

    /** Keeps every message, and what became of the channel. */
    @ChannelHandler.Sharable
    static final class Keeper extends ChannelInboundHandlerAdapter {
        final BlockingQueue<ByteBuf> messages = new LinkedBlockingQueue<>();
        final BlockingQueue<Object> events = new LinkedBlockingQueue<>();

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            messages.add((ByteBuf) message);
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext context, Object event) {
            events.add(event);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            events.add(cause);
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            events.add("inactive");
        }

        ByteBuf message() throws InterruptedException {
            ByteBuf message = messages.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                throw new AssertionError("nothing was received");
            }
            return message;
        }

        Object event() throws InterruptedException {
            Object event = events.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
            if (event == null) {
                throw new AssertionError("nothing happened");
            }
            return event;
        }
    }
}
