package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.management.ThreadMXBean;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.AdaptiveByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.ResourceLeakDetector;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.net.Socket;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** After warm-up a request allocates nothing on the heap, and a connection nothing beside it: counted by the JVM. */
class AllocationTest {
    private static final int WARM_UP = 10_000;
    private static final int REQUESTS = 5_000;
    private static final int LONG_BYTES = 40 << 10;
    private static final int CONNECTIONS = 200;
    /** A busy machine compiles late: a round in which something was allocated was part of warming up. */
    private static final int ROUNDS = 40;

    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    @Test
    void anEchoAllocatesNothing() throws Exception {
        allocatesNothing(PooledByteBufAllocator.DEFAULT, VoidEcho::new);
    }

    /** Netty's default allocator makes a view of a buffer anew in each life of that, if it is asked for one. */
    @Test
    void aResponseOfTheDefaultAllocatorAllocatesNothing() throws Exception {
        ByteBufAllocator allocator = new AdaptiveByteBufAllocator();
        ByteBuf some = allocator.directBuffer(1);
        boolean addressed = some.hasMemoryAddress();
        some.release();
        assumeTrue(addressed, "here only a view shows where a buffer's bytes are");
        allocatesNothing(allocator, CopyingEcho::new);
    }

    /** Long enough to be sent in the midst of the flush. */
    @Test
    void aLongResponseAllocatesNothing() throws Exception {
        allocatesNothing(PooledByteBufAllocator.DEFAULT, LongResponder::new, LONG_BYTES);
    }

    /** What a direct buffer holds is given back by a garbage collection only, and a server that makes no garbage has few. */
    @Test
    void acceptedConnectionsMakeNoDirectBuffers() throws Exception {
        BufferPoolMXBean direct = ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                .filter(pool -> pool.getName().equals("direct"))
                .findFirst()
                .orElseThrow();
        EventLoopGroup group = UnderTest.group(1);
        try {
            Channel server = serve(group, ChannelOption.TCP_NODELAY, true, VoidEcho::new);
            // The thread's own, the allocator's, and those of what is sent and received first.
            connectAndEcho(server, CONNECTIONS);
            long before = direct.getCount();
            connectAndEcho(server, CONNECTIONS);
            long made = direct.getCount() - before;
            assertTrue(made < CONNECTIONS / 2, made + " direct buffers for " + CONNECTIONS + " connections");
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void acceptedConnectionsShareTheirLocalAddress() throws Exception {
        Peers.Accepted accepted = new Peers.Accepted();
        EventLoopGroup group = UnderTest.group(1);
        try {
            Channel server = serve(group, ChannelOption.TCP_NODELAY, true, accepted);
            try (Socket first = Peers.connect(server);
                    Socket second = Peers.connect(server)) {
                Channel one = accepted.next();
                Channel other = accepted.next();
                assertEquals(first.getRemoteSocketAddress(), one.localAddress());
                assertEquals(second.getRemoteSocketAddress(), other.localAddress());
                assertSame(one.localAddress(), other.localAddress());
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    private static <T> Channel serve(
            EventLoopGroup group, ChannelOption<T> option, T value, Supplier<ChannelHandler> handler) throws Exception {
        return serve(group, option, value, Peers.each(handler));
    }

    private static <T> Channel serve(
            EventLoopGroup group, ChannelOption<T> option, T value, ChannelHandler initializer) throws Exception {
        return new ServerBootstrap()
                .group(group)
                .channel(QuoitServerSocketChannel.class)
                .childOption(option, value)
                .childHandler(initializer)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    private static void connectAndEcho(Channel server, int connections) throws Exception {
        for (int made = 0; made < connections; made++) {
            try (Socket client = Peers.connect(server)) {
                exchange(client, 100, 0, 1);
            }
        }
    }

    private void allocatesNothing(ByteBufAllocator allocator, Supplier<ChannelHandler> handler) throws Exception {
        allocatesNothing(allocator, handler, 0);
    }

    /** A response is as long as its request, unless it has a length of its own. */
    private void allocatesNothing(ByteBufAllocator allocator, Supplier<ChannelHandler> handler, int response)
            throws Exception {
        ResourceLeakDetector.Level level = ResourceLeakDetector.getLevel();
        // It wraps buffers, which is what it is for.
        ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.DISABLED);
        EventLoopGroup group = UnderTest.group(1);
        try {
            Channel server = serve(group, ChannelOption.ALLOCATOR, allocator, handler);
            try (Socket client = Peers.connect(server)) {
                // With small limits, pieces of longer ones are copied, which takes two views of memory each.
                for (int length : UnderTest.SMALL ? new int[] {100} : new int[] {100, 6000}) {
                    exchange(client, length, response, WARM_UP);
                    long id = group.submit(() -> Thread.currentThread().getId()).get();
                    long allocated = Long.MAX_VALUE;
                    for (int round = 0; round < ROUNDS && allocated >= REQUESTS; round++) {
                        long before = threads.getThreadAllocatedBytes(id);
                        exchange(client, length, response, REQUESTS);
                        allocated = threads.getThreadAllocatedBytes(id) - before;
                    }
                    // Less than a byte a request: what is left is the virtual machine's own.
                    assertTrue(
                            allocated < REQUESTS, allocated + " bytes in " + REQUESTS + " requests of " + length);
                }
            }
        } finally {
            ResourceLeakDetector.setLevel(level);
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    private static void exchange(Socket client, int length, int responseLength, int times) throws Exception {
        byte[] request = Peers.bytes(length);
        byte[] response = new byte[responseLength > 0 ? responseLength : length];
        for (int round = 0; round < times; round++) {
            client.getOutputStream().write(request);
            client.getInputStream().readNBytes(response, 0, response.length);
        }
        assertArrayEquals(responseLength > 0 ? Peers.bytes(responseLength) : request, response);
    }

    /** An echo whose writes have no promises of their own. */
    private static class VoidEcho extends io.netty.channel.ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(io.netty.channel.ChannelHandlerContext context, Object message) {
            context.write(message, context.voidPromise());
        }

        @Override
        public void channelReadComplete(io.netty.channel.ChannelHandlerContext context) {
            context.flush();
        }
    }

    /** Answers each request of whatever length with the same long buffer. */
    private static final class LongResponder extends VoidEcho {
        private final ByteBuf response = Unpooled.unreleasableBuffer(Peers.direct(Peers.bytes(LONG_BYTES)));
        @Override
        public void channelRead(io.netty.channel.ChannelHandlerContext context, Object message) {
            ReferenceCountUtil.release(message);
            // What was sent in part has been advanced.
            super.channelRead(context, response.readerIndex(0));
        }
    }

    /** Answers with a buffer of the channel's allocator. */
    private static final class CopyingEcho extends VoidEcho {
        @Override
        public void channelRead(io.netty.channel.ChannelHandlerContext context, Object message) {
            ByteBuf request = (ByteBuf) message;
            ByteBuf response = context.alloc().directBuffer(request.readableBytes());
            // Not as a whole, which takes views of both where Netty has no Unsafe.
            while (request.isReadable()) {
                response.writeByte(request.readByte());
            }
            request.release();
            super.channelRead(context, response);
        }
    }
}
