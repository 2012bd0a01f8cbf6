package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultAddressedEnvelope;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SingleThreadIoEventLoop;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.unix.SegmentedDatagramPacket;
import io.netty.util.IllegalReferenceCountException;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.PortUnreachableException;
import java.nio.channels.NotYetConnectedException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Datagrams: whose memory they are in, what becomes of each, and what the channel's options and calls do. */
class DatagramTest {
    private static final InetSocketAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0);

    private final EventLoopGroup group = UnderTest.group(1);
    private final BlockingQueue<DatagramPacket> packets = new LinkedBlockingQueue<>();
    private final BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();

    @AfterEach
    void end() throws Exception {
        packets.forEach(DatagramPacket::release);
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private Bootstrap datagrams() {
        return datagrams(SocketProtocolFamily.INET);
    }

    private Bootstrap datagrams(SocketProtocolFamily family) {
        return new Bootstrap()
                .group(group)
                .channelFactory(() -> new QuoitDatagramChannel(family))
                .handler(Peers.each(() -> new ChannelInboundHandlerAdapter() {
                    @Override
                    public void channelRead(ChannelHandlerContext context, Object message) {
                        packets.add((DatagramPacket) message);
                    }

                    @Override
                    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
                        failures.add(cause);
                    }
                }));
    }

    private QuoitDatagramChannel bind(Bootstrap bootstrap) throws Exception {
        return (QuoitDatagramChannel) bootstrap.bind(LOOPBACK).sync().channel();
    }

    private DatagramPacket next() throws InterruptedException {
        DatagramPacket packet = packets.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (packet == null) {
            throw new AssertionError("nothing was received; failures: " + failures);
        }
        return packet;
    }

    private void expect(String text) throws InterruptedException {
        DatagramPacket packet = next();
        assertEquals(text, text(packet));
        packet.release();
    }

    private static ByteBuf text(String text) {
        return Unpooled.directBuffer().writeBytes(text.getBytes(StandardCharsets.US_ASCII));
    }

    private static String text(DatagramPacket packet) {
        return packet.content().toString(StandardCharsets.US_ASCII);
    }

    @Test
    void receivedBytesAreTheSocketsOwnMemoryWhoeverReleasesThem() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        List<DatagramPacket> kept = new ArrayList<>();
        for (int count = 0; count < 3; count++) {
            client.writeAndFlush(new DatagramPacket(text("ping " + count), server.localAddress())).sync();
            DatagramPacket packet = next();
            assertEquals("ping " + count, text(packet));
            assertEquals(client.localAddress(), packet.sender());
            assertEquals(server.localAddress(), packet.recipient());
            assertInstanceOf(LeaseSlot.Buffer.class, packet.content().unwrap());
            kept.add(packet);
        }
        kept.get(0).release();
        group.submit(() -> kept.get(1).release()).sync();
        assertEquals(3, server.snapshot().receivedPieces());
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        assertEquals("ping 2", text(kept.get(2)));
        assertTrue(kept.get(2).release());
    }

    @Test
    void aHandlerThatKeepsEverythingGetsCopiesAndLosesNothing() throws Exception {
        QuoitDatagramChannel server = bind(datagrams().option(QuoitChannelOption.DATAGRAM_SLOTS, 4));
        QuoitDatagramChannel client = bind(datagrams());
        List<DatagramPacket> kept = new ArrayList<>();
        for (int count = 0; count < 50; count++) {
            client.writeAndFlush(new DatagramPacket(text("kept " + count), server.localAddress())).sync();
            kept.add(next());
        }
        long leases = kept.stream()
                .filter(packet -> packet.content().unwrap() instanceof LeaseSlot.Buffer)
                .count();
        assertEquals(2, leases);
        for (int count = 0; count < 50; count++) {
            assertEquals("kept " + count, text(kept.get(count)));
            kept.get(count).release();
        }
    }

    @Test
    void manyOfOneFlushKeepTheirOrderAndTheirPromises() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        List<ChannelFuture> futures = new ArrayList<>();
        for (int count = 0; count < 100; count++) {
            futures.add(client.write(new DefaultAddressedEnvelope<>(text("n" + count), server.localAddress())));
        }
        client.flush();
        for (int count = 0; count < 100; count++) {
            futures.get(count).sync();
            expect("n" + count);
        }
        assertEquals(0, client.snapshot().pendingBytes());
    }

    @Test
    void sendsCancelledBeforeTheirFlushAreLeftOutAndNoOtherIsSentTwice() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        client.connect(server.localAddress()).sync();
        List<String> expected = new ArrayList<>();
        List<ChannelFuture> futures = new ArrayList<>();
        client.eventLoop()
                .submit(() -> {
                    for (int pattern = 0; pattern < 16; pattern++) {
                        for (int write = 0; write < 4; write++) {
                            // An empty one stands in the queue as a cancelled one does.
                            String message = write == 2 ? "" : "p" + pattern + "w" + write;
                            ChannelFuture future =
                                    client.write(message.isEmpty() ? Unpooled.EMPTY_BUFFER : text(message));
                            if ((pattern & 1 << write) == 0) {
                                expected.add(message);
                                futures.add(future);
                            } else {
                                assertTrue(future.cancel(false));
                            }
                        }
                        client.flush();
                    }
                })
                .sync();
        for (ChannelFuture future : futures) {
            future.sync();
        }
        // Comes behind whatever was sent for them.
        expected.add("last");
        client.writeAndFlush(text("last")).sync();
        for (String message : expected) {
            expect(message);
        }
        assertEquals(0, client.snapshot().pendingBytes());
    }

    @Test
    void whatIsTooLongFailsAloneAndTheSocketGoesOn() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        ByteBuf large = Unpooled.directBuffer(66_000).writeZero(66_000);
        ChannelFuture before = client.write(new DatagramPacket(text("before"), server.localAddress()));
        ChannelFuture tooLong = client.write(new DatagramPacket(large, server.localAddress()));
        ChannelFuture after = client.write(new DatagramPacket(Unpooled.EMPTY_BUFFER, server.localAddress()));
        client.flush();
        before.sync();
        after.sync();
        assertEquals("Message too long", tooLong.await().cause().getMessage());
        assertEquals(0, large.refCnt());
        for (String expected : new String[] {"before", ""}) {
            expect(expected);
        }
    }

    @Test
    void segmentsAreCutByTheKernelAndJoinedOnesComeOneByOne() throws Exception {
        QuoitDatagramChannel server = bind(datagrams().option(QuoitChannelOption.UDP_GRO, true));
        QuoitDatagramChannel client = bind(datagrams());
        byte[] bytes = Peers.bytes(2_500);
        client.writeAndFlush(new SegmentedDatagramPacket(Peers.direct(bytes), 1_000, server.localAddress())).sync();
        ByteBuf all = Unpooled.buffer();
        for (int expected : new int[] {1_000, 1_000, 500}) {
            DatagramPacket packet = next();
            assertEquals(expected, packet.content().readableBytes());
            all.writeBytes(packet.content());
            packet.release();
        }
        assertArrayEquals(bytes, all.array().length == bytes.length ? all.array() : copy(all));
    }

    private static byte[] copy(ByteBuf bytes) {
        byte[] copy = new byte[bytes.readableBytes()];
        bytes.getBytes(bytes.readerIndex(), copy);
        return copy;
    }

    @Test
    void withoutAutoReadEachReadBringsWhatCameAndNoMore() throws Exception {
        QuoitDatagramChannel server = bind(datagrams().option(ChannelOption.AUTO_READ, false));
        QuoitDatagramChannel client = bind(datagrams());
        for (int count = 0; count < 5; count++) {
            client.writeAndFlush(new DatagramPacket(text("r" + count), server.localAddress())).sync();
        }
        assertTrue(packets.isEmpty());
        for (int count = 0; count < 5; count++) {
            server.read();
            expect("r" + count);
            // Nothing may have come after it: a run of the loop has passed since.
            group.submit(() -> {}).sync();
            assertTrue(packets.isEmpty());
        }
    }

    @Test
    void anAllocatorThatTheUserNamesIsUsed() throws Exception {
        QuoitDatagramChannel server =
                bind(datagrams().option(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(4)));
        QuoitDatagramChannel client = bind(datagrams());
        client.writeAndFlush(new DatagramPacket(text("cut here"), server.localAddress())).sync();
        DatagramPacket packet = next();
        assertEquals("cut ", text(packet));
        assertFalse(packet.content().unwrap() instanceof LeaseSlot.Buffer);
        packet.release();
    }

    @Test
    void anApplicationThatIgnoresIsWritableIsRefused() throws Exception {
        QuoitDatagramChannel client = bind(datagrams().option(QuoitChannelOption.PENDING_WRITE_LIMIT, 3_000L));
        List<ChannelFuture> futures = new ArrayList<>();
        group.submit(() -> {
                    for (int count = 0; count < 10; count++) {
                        ByteBuf bytes = Peers.direct(new byte[1_000]);
                        futures.add(client.write(new DatagramPacket(bytes, client.localAddress())));
                    }
                    client.flush();
                })
                .sync();
        assertInstanceOf(PendingWritesException.class, futures.get(9).await().cause());
        futures.get(0).sync();
        for (int count = 0; count < futures.size() && futures.get(count).await().isSuccess(); count++) {
            next().release();
        }
    }

    @Test
    void closingWithSendsUnderWayFailsOrSendsThemAndReleasesTheirMemory() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        List<ByteBuf> buffers = new ArrayList<>();
        group.submit(() -> {
                    for (int count = 0; count < 20; count++) {
                        ByteBuf bytes = text("late " + count);
                        buffers.add(bytes);
                        client.write(new DatagramPacket(bytes, server.localAddress()));
                    }
                    client.flush();
                    client.close();
                })
                .sync();
        client.closeFuture().sync();
        // What was flushed leaves all the same.
        for (int count = 0; count < 20; count++) {
            expect("late " + count);
        }
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        assertTrue(buffers.stream().allMatch(bytes -> bytes.refCnt() == 0));
    }

    /** The second flush waits for the first, which has not left when the channel is closed; other transports have sent both. */
    @Test
    void allFlushesLeaveThoughTheChannelIsClosedAtOnce() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        List<ByteBuf> buffers = new ArrayList<>();
        // More than there is room for at first.
        int most = 40;
        group.submit(() -> {
                    for (int count = 0; count < most; count++) {
                        ByteBuf bytes = text("late " + count);
                        buffers.add(bytes);
                        client.write(new DatagramPacket(bytes, server.localAddress()));
                        if (count % 8 == 0) {
                            client.flush();
                        }
                    }
                    client.flush();
                    client.close();
                })
                .sync();
        client.closeFuture().sync();
        for (int count = 0; count < most; count++) {
            expect("late " + count);
        }
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        assertTrue(buffers.stream().allMatch(bytes -> bytes.refCnt() == 0));
    }

    /** What cannot be sent fails by itself: others of the same flush leave, and the channel stays. */
    @Test
    void aMessageThatCannotBeSentFailsAlone() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        client.connect(server.localAddress()).sync();
        List<ChannelFuture> writes = new ArrayList<>();
        group.submit(() -> {
                    writes.add(client.write(new DatagramPacket(text("before"), server.localAddress())));
                    writes.add(client.write(text("to whom?")));
                    ByteBuf released = text("released");
                    writes.add(client.write(new DatagramPacket(released, server.localAddress())));
                    released.release();
                    writes.add(client.write(new DatagramPacket(text("behind"), server.localAddress())));
                    client.disconnect();
                    client.flush();
                })
                .sync();
        for (String expected : List.of("before", "behind")) {
            expect(expected);
        }
        assertTrue(writes.get(0).await().isSuccess());
        assertInstanceOf(NotYetConnectedException.class, writes.get(1).await().cause());
        assertInstanceOf(
                IllegalReferenceCountException.class, writes.get(2).await().cause());
        assertTrue(writes.get(3).await().isSuccess());
        assertTrue(client.isActive());
    }

    /** On the loopback interface, which need not be marked as one for multicast. */
    @Test
    void groupsAreJoinedLeftAndBlocked() throws Exception {
        NetworkInterface loopback = NetworkInterface.getByInetAddress(InetAddress.getByName("127.0.0.1"));
        InetAddress address = InetAddress.getByName("239.255.17.4");
        QuoitDatagramChannel server = (QuoitDatagramChannel)
                datagrams().bind(new InetSocketAddress("0.0.0.0", 0)).sync().channel();
        InetSocketAddress multicast =
                new InetSocketAddress(address, server.localAddress().getPort());
        InetSocketAddress unicast =
                new InetSocketAddress("127.0.0.1", server.localAddress().getPort());
        QuoitDatagramChannel client = bind(datagrams().option(ChannelOption.IP_MULTICAST_IF, loopback));
        server.config().setOption(QuoitChannelOption.IP_MULTICAST_ALL, false);
        assertFalse(server.config().getOption(QuoitChannelOption.IP_MULTICAST_ALL));
        assertEquals(loopback, client.config().getNetworkInterface());

        server.joinGroup(multicast, loopback).sync();
        client.writeAndFlush(new DatagramPacket(text("joined"), multicast)).sync();
        expect("joined");

        server.block(address, loopback, InetAddress.getByName("127.0.0.1")).sync();
        expectOnly("blocked", client, multicast, unicast);
        server.leaveGroup(multicast, loopback).sync();
        expectOnly("left", client, multicast, unicast);
        assertTrue(server.leaveGroup(multicast, loopback).await().cause() instanceof Exception);

        server.joinGroup(address, loopback, InetAddress.getByName("127.0.0.1")).sync();
        client.writeAndFlush(new DatagramPacket(text("from the source"), multicast)).sync();
        expect("from the source");
        server.leaveGroup(address, loopback, InetAddress.getByName("127.0.0.1")).sync();
        expectOnly("left the source", client, multicast, unicast);
    }

    /** What is sent to the group does not come, as the datagram that follows it to the socket itself is the first. */
    private void expectOnly(
            String what, QuoitDatagramChannel client, InetSocketAddress multicast, InetSocketAddress unicast)
            throws Exception {
        client.writeAndFlush(new DatagramPacket(text("to the group: " + what), multicast)).sync();
        client.writeAndFlush(new DatagramPacket(text(what), unicast)).sync();
        expect(what);
    }

    @Test
    @SuppressWarnings("deprecation")
    void optionsGoToTheSocketOrAreRefused() throws Exception {
        QuoitDatagramChannel channel = bind(datagrams()
                .option(ChannelOption.SO_BROADCAST, true)
                .option(ChannelOption.SO_REUSEADDR, true)
                .option(QuoitChannelOption.SO_REUSEPORT, true)
                .option(ChannelOption.IP_TOS, 16)
                .option(ChannelOption.IP_MULTICAST_TTL, 3)
                .option(ChannelOption.IP_MULTICAST_LOOP_DISABLED, true)
                .option(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE, 1_500));
        QuoitDatagramChannelConfig config = channel.config();
        assertTrue(config.isBroadcast());
        assertTrue(config.isReuseAddress());
        assertTrue(config.getOption(QuoitChannelOption.SO_REUSEPORT));
        assertEquals(16, config.getTrafficClass());
        assertEquals(3, config.getTimeToLive());
        assertTrue(config.isLoopbackModeDisabled());
        assertEquals(1_500, config.getOption(QuoitChannelOption.MAX_DATAGRAM_PAYLOAD_SIZE));
        assertTrue(config.getOptions().containsKey(QuoitChannelOption.DATAGRAM_SLOTS));
        assertThrows(IllegalStateException.class, () -> config.setOption(QuoitChannelOption.DATAGRAM_SLOTS, 8));
        assertThrows(
                IllegalStateException.class,
                () -> config.setOption(ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION, true));
        assertFalse(config.setOption(ChannelOption.TCP_NODELAY, true));
        assertThrows(
                UnsupportedOperationException.class, () -> new QuoitDatagramChannel(SocketProtocolFamily.UNIX));
        assertInstanceOf(
                UnsupportedOperationException.class, channel.write("a text").await().cause());
    }

    @Test
    void socketsPastTheLimitOfTheLoopAreRefusedWithTheReason() throws Exception {
        EventLoopGroup few = new MultiThreadIoEventLoopGroup(
                1, QuoitIoHandler.newFactory(UnderTest.config().withDatagramSockets(1)));
        try {
            Bootstrap bootstrap = datagrams().clone(few);
            QuoitDatagramChannel first = bind(bootstrap);
            Throwable cause = bootstrap.bind(LOOPBACK).await().cause();
            assertTrue(cause.getMessage().contains("datagram_sockets"), cause.toString());
            // There is room again, and the port is free, when the close is done: at once, in the loop's own listener.
            InetSocketAddress address = first.localAddress();
            ChannelFuture[] again = new ChannelFuture[1];
            first.close().addListener(closed -> again[0] = bootstrap.bind(address)).sync();
            few.submit(() -> {}).sync();
            assertEquals(address, again[0].sync().channel().localAddress());
        } finally {
            few.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** Its channel is closed, and the loop must not keep it for ever. */
    @Test
    @SuppressWarnings("deprecation")
    void aSocketThatIsRefusedWhenItIsRegisteredLeavesNothingAtItsLoop() throws Exception {
        CountingLoop loop = new CountingLoop(UnderTest.config().withDatagramSockets(1));
        try {
            Bootstrap bootstrap =
                    datagrams().clone(loop).option(ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION, true);
            bind(bootstrap);
            assertEquals(1, loop.getNumOfRegisteredChannels());
            ChannelFuture refused = bootstrap.register().await();
            assertInstanceOf(ChannelException.class, refused.cause());
            refused.channel().closeFuture().sync();
            loop.submit(() -> {}).sync();
            assertEquals(1, loop.getNumOfRegisteredChannels());
        } finally {
            loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** Tells how many registrations it has. */
    private static final class CountingLoop extends SingleThreadIoEventLoop {
        CountingLoop(QuoitIoHandlerConfig config) {
            super(null, new DefaultThreadFactory("test-quoit", true), QuoitIoHandler.newFactory(config));
        }

        @Override
        protected int getNumOfRegisteredChannels() {
            return super.getNumOfRegisteredChannels();
        }
    }

    /** Who cannot be reached is told, on a channel that is connected to nobody, and nobody else loses a datagram for it. */
    @Test
    void whoCannotBeReachedIsToldWithItsAddress() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        // Of IPv4, and of both where there is IPv6.
        for (SocketProtocolFamily family : Arrays.asList(SocketProtocolFamily.INET, null)) {
            Bootstrap told = datagrams(family).option(QuoitChannelOption.IP_RECVERR, true);
            QuoitDatagramChannel client =
                    (QuoitDatagramChannel) told.bind(new InetSocketAddress(0)).sync().channel();
            assertTrue(client.config().getOption(QuoitChannelOption.IP_RECVERR));
            assertThrows(
                    IllegalStateException.class,
                    () -> client.config().setOption(QuoitChannelOption.IP_RECVERR, false));
            for (int round = 0; round < 3; round++) {
                // It hears somebody else only, and keeps the port from being taken.
                try (DatagramSocket deaf = new DatagramSocket(LOOPBACK)) {
                    deaf.connect(server.localAddress());
                    InetSocketAddress nobody = (InetSocketAddress) deaf.getLocalSocketAddress();
                    client.write(new DatagramPacket(text("anybody?"), nobody));
                    client.writeAndFlush(new DatagramPacket(text("you"), server.localAddress())).sync();
                    expect("you");
                    Throwable failure = failures.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
                    ReceiverUnreachableException unreachable =
                            assertInstanceOf(ReceiverUnreachableException.class, failure);
                    assertEquals(nobody, unreachable.receiver());
                    assertInstanceOf(PortUnreachableException.class, unreachable.getCause());
                }
            }
        }
        assertTrue(failures.isEmpty(), failures.toString());
    }

    @Test
    void afterDisconnectTheSocketHasItsPortStill() throws Exception {
        QuoitDatagramChannel server = bind(datagrams());
        QuoitDatagramChannel client = bind(datagrams());
        InetSocketAddress own = client.localAddress();
        client.connect(server.localAddress()).sync();
        assertEquals(server.localAddress(), client.remoteAddress());
        client.disconnect().sync();
        assertNull(client.remoteAddress());
        assertEquals(own, client.localAddress());
        server.writeAndFlush(new DatagramPacket(text("still here"), own)).sync();
        expect("still here");
    }
}
