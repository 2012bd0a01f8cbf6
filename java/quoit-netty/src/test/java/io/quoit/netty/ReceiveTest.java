package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What is received: whose memory it is, how much of it there can be, and when nothing comes. */
class ReceiveTest {
    private final EventLoopGroup group = UnderTest.group(1);
    private final Peers.Keeper keeper = new Peers.Keeper();
    private final Peers.Accepted accepted = new Peers.Accepted(channel -> channel.pipeline().addLast(keeper));

    private Channel server;

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private Channel serve(UnaryOperator<ServerBootstrap> options) throws Exception {
        ServerBootstrap bootstrap = new ServerBootstrap().group(group).channel(QuoitServerSocketChannel.class);
        return options.apply(bootstrap).childHandler(accepted).bind("127.0.0.1", 0).sync().channel();
    }

    private Channel serve(boolean autoRead) throws Exception {
        return serve(bootstrap -> bootstrap.childOption(ChannelOption.AUTO_READ, autoRead));
    }

    /** Slots that pipelines of the group's only loop hold, as of now. */
    private long slotsInPipelines() throws Exception {
        AbstractQuoitServerChannel channel = (AbstractQuoitServerChannel) server;
        return group.submit(() -> channel.handler().metrics().snapshot().value("pipeline_slots")).get();
    }

    /** Collects messages until there are so many bytes; the caller releases the result. */
    private CompositeByteBuf collect(int length) throws Exception {
        CompositeByteBuf all = Unpooled.compositeBuffer(1 << 20);
        while (all.readableBytes() < length) {
            all.addComponent(true, keeper.message());
        }
        return all;
    }

    private static byte[] content(ByteBuf bytes) {
        byte[] content = new byte[bytes.readableBytes()];
        bytes.getBytes(bytes.readerIndex(), content);
        return content;
    }

    @Test
    void receivedBytesAreTheLoopsOwnMemoryAndAreUsedAgain() throws Exception {
        server = serve(true);
        try (Socket client = Peers.connect(server)) {
            client.getOutputStream().write(1);
            ByteBuf first = keeper.message();
            assertTrue(first.isDirect());
            assertTrue(first.hasMemoryAddress());
            assertEquals(1, slotsInPipelines());
            first.release();
            group.submit(() -> {}).sync();
            assertEquals(0, slotsInPipelines());
            client.getOutputStream().write(2);
            ByteBuf second = keeper.message();
            assertEquals(2, second.readByte());
            second.release();
        }
    }

    @Test
    void slotsThatAreUsedAgainHaveTheAllocatorOfTheirNewChannel() throws Exception {
        server = serve(true);
        for (ByteBufAllocator own : List.of(new PooledByteBufAllocator(true), UnpooledByteBufAllocator.DEFAULT)) {
            try (Socket client = Peers.connect(server)) {
                Channel channel = accepted.next();
                channel.config().setAllocator(own);
                group.submit(() -> {}).sync();
                for (int count = 0; count < 2 * UnderTest.config().receiveSlots(); count++) {
                    client.getOutputStream().write(count);
                    ByteBuf message = keeper.message();
                    assertSame(own, message.alloc());
                    group.submit(() -> message.release()).sync();
                }
            }
        }
    }

    @Test
    void aHandlerThatKeepsEverythingGetsCopiesAndNoByteIsLost() throws Exception {
        byte[] sent = Peers.bytes(4 << 20);
        server = serve(true);
        try (Socket client = Peers.connect(server)) {
            client.getOutputStream().write(sent);
            CompositeByteBuf all = collect(sent.length);
            assertArrayEquals(sent, content(all));
            QuoitIoHandlerConfig config = UnderTest.config();
            long held = slotsInPipelines();
            assertTrue(held <= config.leasesBeforeCopy(), held + " slots are held");
            assertTrue(held > 0, "nothing was handed on without a copy");
            all.release();
            assertEquals(0, slotsInPipelines());
        }
    }

    @Test
    void buffersOutliveTheirLoopAndAreReleasedElsewhere() throws Exception {
        byte[] sent = Peers.bytes(100);
        server = serve(true);
        try (Socket client = Peers.connect(server)) {
            client.getOutputStream().write(sent);
            CompositeByteBuf all = collect(sent.length);
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
            assertArrayEquals(sent, content(all));
            Thread other = new Thread(all::release);
            other.start();
            other.join();
            assertEquals(0, all.refCnt());
        }
    }

    @Test
    void buffersMayBeReleasedByAnyThreadWhileTheLoopRuns() throws Exception {
        server = serve(true);
        byte[] piece = Peers.bytes(64);
        try (Socket client = Peers.connect(server)) {
            // More than the pool has slots, one after the other.
            for (int round = 0; round < 3000; round++) {
                client.getOutputStream().write(piece);
                int left = piece.length;
                while (left > 0) {
                    ByteBuf message = keeper.message();
                    left -= message.readableBytes();
                    message.release();
                }
            }
            assertEquals(0, slotsInPipelines());
        }
    }

    @Test
    void withoutAutoReadNothingComesAndThePeerIsHeldBack() throws Exception {
        server = serve(false);
        int length = 32 << 20;
        byte[] sent = Peers.bytes(length);
        try (Socket client = Peers.connect(server)) {
            Thread writer = Peers.writing(client, sent);
            Channel channel = accepted.next();
            // One read, one message.
            channel.read();
            ByteBuf one = keeper.message();
            List<ByteBuf> all = new ArrayList<>(List.of(one));
            channel.read();
            all.add(keeper.message());
            group.submit(() -> {}).sync();
            assertTrue(keeper.messages.isEmpty(), "a message came that nobody had asked for");
            QuoitIoHandlerConfig config = UnderTest.config();
            assertTrue(slotsInPipelines() <= config.receiveSlotsForApplication());
            assertTrue(writer.isAlive(), "32 MiB went somewhere though nobody reads");
            channel.config().setAutoRead(true);
            int got = all.stream().mapToInt(ByteBuf::readableBytes).sum();
            CompositeByteBuf rest = collect(length - got);
            writer.join();
            CompositeByteBuf whole = Unpooled.compositeBuffer(1 << 20);
            all.forEach(bytes -> whole.addComponent(true, bytes));
            whole.addComponent(true, rest);
            assertArrayEquals(sent, content(whole));
            whole.release();
        }
    }

    /** Flow control as Reactor Netty and gRPC do it: off with each message, on again a moment later, on any thread. */
    @Test
    void togglingAutoReadWithEveryMessageNeitherStallsNorLoses() throws Exception {
        byte[] sent = Peers.bytes(4 << 20);
        server = serve(true);
        try (Socket client = Peers.connect(server)) {
            Channel channel = accepted.next();
            channel.pipeline().addFirst(new ChannelInboundHandlerAdapter() {
                private boolean here;

                @Override
                public void channelRead(ChannelHandlerContext context, Object message) {
                    context.channel().config().setAutoRead(false);
                    context.fireChannelRead(message);
                    here = !here;
                    if (here) {
                        context.executor().execute(() -> context.channel().config().setAutoRead(true));
                    }
                }
            });
            Thread writer = Peers.writing(client, sent);
            CompositeByteBuf all = Unpooled.compositeBuffer(1 << 20);
            while (all.readableBytes() < sent.length) {
                all.addComponent(true, keeper.message());
                channel.config().setAutoRead(true);
            }
            writer.join();
            assertArrayEquals(sent, content(all));
            all.release();
        }
    }

    @Test
    void theEndOfTheStreamComesAfterWhatWasHeldBack() throws Exception {
        server = serve(false);
        byte[] sent = Peers.bytes(3000);
        Channel channel;
        try (Socket client = Peers.connect(server)) {
            channel = accepted.next();
            channel.read();
            client.getOutputStream().write(sent);
        }
        channel.config().setAutoRead(true);
        CompositeByteBuf all = collect(sent.length);
        assertArrayEquals(sent, content(all));
        all.release();
        assertEquals("inactive", keeper.event());
        assertFalse(channel.isOpen());
    }

    @Test
    void anAllocatorThatTheUserNamesIsUsed() throws Exception {
        server = serve(bootstrap ->
                bootstrap.childOption(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(7)));
        byte[] sent = Peers.bytes(20);
        try (Socket client = Peers.connect(server)) {
            client.getOutputStream().write(sent);
            Channel channel = accepted.next();
            CompositeByteBuf all = Unpooled.compositeBuffer();
            while (all.readableBytes() < sent.length) {
                ByteBuf message = keeper.message();
                assertTrue(message.readableBytes() <= 7);
                assertSame(channel.alloc(), message.alloc());
                all.addComponent(true, message);
            }
            assertArrayEquals(sent, content(all));
            all.release();
        }
    }

    @Test
    void aServerWithoutAutoReadLeavesConnectionsInTheKernelsQueue() throws Exception {
        server = serve(bootstrap -> bootstrap.option(ChannelOption.AUTO_READ, false));
        List<Socket> clients = new ArrayList<>();
        try {
            for (int client = 0; client < 20; client++) {
                clients.add(Peers.connect(server));
            }
            group.submit(() -> {}).sync();
            assertTrue(accepted.isEmpty(), "a connection was accepted that nobody had asked for");
            server.config().setAutoRead(true);
            for (Socket client : clients) {
                accepted.next();
            }
        } finally {
            for (Socket client : clients) {
                client.close();
            }
        }
    }

    /** Who asks for a connection now and then gets no more than that: the others stay with the kernel. */
    @Test
    void aServerThatAsksForConnectionsOneByOneLeavesTheOthersInTheKernelsQueue() throws Exception {
        server = serve(bootstrap -> bootstrap.option(ChannelOption.AUTO_READ, false));
        List<Socket> clients = new ArrayList<>();
        try {
            server.read();
            clients.add(Peers.connect(server));
            accepted.next();
            // It is on its way when the loop is told to accept no more.
            clients.add(Peers.connect(server));
            long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
            while (acceptedByLoop() < 2) {
                assertTrue(System.nanoTime() < giveUp, "the loop has accepted " + acceptedByLoop());
            }
            for (int client = 0; client < 20; client++) {
                clients.add(Peers.connect(server));
                assertEquals(2, acceptedByLoop());
            }
            server.read();
            accepted.next();
            assertTrue(group.submit(accepted::isEmpty).get(), "a connection was delivered that nobody had asked for");
            assertEquals(2, acceptedByLoop());
            for (int client = 2; client < clients.size(); client++) {
                server.read();
                accepted.next();
            }
            assertTrue(group.submit(accepted::isEmpty).get());
        } finally {
            for (Socket client : clients) {
                client.close();
            }
        }
    }

    private long acceptedByLoop() throws Exception {
        AbstractQuoitServerChannel channel = (AbstractQuoitServerChannel) server;
        return group.submit(() -> channel.handler().metrics().snapshot().value("accepted")).get();
    }

    /** One turn reports 1,024 events: connections past that are attached already, and not yet known by an id. */
    @Test
    void readsOfConnectionsWhoseOpeningIsNotToldYetAreNotLost() throws Exception {
        int count = 1024 + 20;
        BlockingQueue<Channel> children = new LinkedBlockingQueue<>();
        server = new QuoitServerSocketChannel();
        server.config().setOption(ChannelOption.SO_BACKLOG, count);
        server.pipeline().addLast(new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object child) {
                children.add((Channel) child);
            }
        });
        EventLoop loop = group.next();
        loop.register(server).sync();
        server.bind(new InetSocketAddress("127.0.0.1", 0)).sync();
        List<Socket> peers = new ArrayList<>();
        try {
            List<Channel> channels = new ArrayList<>();
            while (peers.size() < count) {
                Socket peer = Peers.connect(server);
                peers.add(peer);
                peer.getOutputStream().write(1);
                Channel child = children.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
                child.config().setAutoRead(false);
                child.pipeline().addLast(keeper);
                channels.add(child);
            }
            loop.submit(() -> {
                        channels.forEach(loop::register);
                        ((AbstractQuoitServerChannel) server).handler().atEndOfRun(() -> channels.forEach(Channel::read));
                    })
                    .sync();
            for (int received = 0; received < count; received++) {
                keeper.message().release();
            }
        } finally {
            for (Socket peer : peers) {
                peer.close();
            }
        }
    }
}
