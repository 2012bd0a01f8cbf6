package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoEvent;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoRegistration;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.concurrent.ThreadAwareExecutor;
import java.lang.management.ManagementFactory;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AlreadyBoundException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.management.JMX;
import javax.management.ObjectName;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Loops and channels as they begin and end, and what may be asked of them before, between and after. */
class LifecycleTest {
    private static final long COALESCE_NANOS = 50_000_000;

    private final EventLoopGroup group = UnderTest.group(2);

    @AfterEach
    void end() throws Exception {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private ServerBootstrap server() {
        return new ServerBootstrap().group(group).channel(QuoitServerSocketChannel.class);
    }

    private Bootstrap client() {
        return new Bootstrap()
                .group(group)
                .channel(QuoitSocketChannel.class)
                .handler(new ChannelInboundHandlerAdapter());
    }

    @Test
    void aLoopThatHasFailedWaitsForTasksInsteadOfGoingRound() throws Exception {
        IoHandler handler = QuoitIoHandler.newFactory(UnderTest.config()).newHandler(new ThreadAwareExecutor() {
            @Override
            public boolean isExecutorThread(Thread thread) {
                return false;
            }

            @Override
            public void execute(Runnable task) {
                task.run();
            }
        });
        FutureTask<Void> begin = new FutureTask<>(handler::initialize, null);
        Thread virtual = VirtualThreads.factory().newThread(begin);
        virtual.start();
        virtual.join();
        assertThrows(ExecutionException.class, begin::get);
        Thread loop = new Thread(() -> handler.run(new IoHandlerContext() {
            @Override
            public boolean canBlock() {
                return true;
            }

            @Override
            public long delayNanos(long now) {
                throw new AssertionError("there is no deadline");
            }

            @Override
            public long deadlineNanos() {
                return -1;
            }
        }));
        loop.start();
        while (loop.getState() != Thread.State.TIMED_WAITING) {
            assertTrue(loop.isAlive(), "it did not wait");
            Thread.onSpinWait();
        }
        handler.wakeup();
        loop.join();
        handler.destroy();
    }

    @Test
    void theLoopsRunOnTheEngineThatWasAskedFor() throws Exception {
        group.submit(() -> {}).sync();
        assertTrue(Quoit.isAvailable());
        assertNull(Quoit.unavailabilityCause());
        assertTrue(Quoit.loops().stream().allMatch(loop -> loop.engine() == UnderTest.ENGINE), Quoit.loops().toString());
        assertTrue(Quoit.doctor().available());
        assertFalse(Quoit.doctor().features().isEmpty());
        assertEquals("quoit", Quoit.transport().name());
    }

    @Test
    void unixSocketsWorkByPathAndByAbstractName(@TempDir Path folder) throws Exception {
        Path path = folder.resolve("socket");
        for (String name : new String[] {path.toString(), "\0quoit-netty-test-" + ProcessHandle.current().pid()}) {
            Peers.Keeper keeper = new Peers.Keeper();
            Channel server = new ServerBootstrap()
                    .group(group)
                    .channel(QuoitServerDomainSocketChannel.class)
                    .childHandler(Peers.each(Peers.Echo::new))
                    .bind(new DomainSocketAddress(name))
                    .sync()
                    .channel();
            assertEquals(new DomainSocketAddress(name), server.localAddress());
            Channel client = new Bootstrap()
                    .group(group)
                    .channel(QuoitDomainSocketChannel.class)
                    .handler(keeper)
                    .connect(server.localAddress())
                    .sync()
                    .channel();
            byte[] bytes = Peers.bytes(10_000);
            client.writeAndFlush(Peers.direct(bytes)).sync();
            int received = 0;
            while (received < bytes.length) {
                ByteBuf message = keeper.message();
                for (; message.isReadable(); received++) {
                    assertEquals(bytes[received], message.readByte());
                }
                message.release();
            }
            client.close().sync();
            server.close().sync();
        }
        assertFalse(Files.exists(path));
    }

    @Test
    void optionsCanBeSetBeforeDuringAndAfterByAnyThread() throws Exception {
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = server().option(ChannelOption.SO_BACKLOG, 17)
                .childOption(ChannelOption.SO_KEEPALIVE, true)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        assertEquals(17, server.config().getOption(ChannelOption.SO_BACKLOG));
        assertTrue(server.config().getOption(ChannelOption.SO_REUSEADDR));
        QuoitSocketChannel early = new QuoitSocketChannel();
        early.config().setKeepAlive(true).setSoLinger(3).setTcpNoDelay(false);
        early.config().setOption(QuoitChannelOption.TCP_USER_TIMEOUT, 12_000);
        assertTrue(early.config().isKeepAlive());
        assertTrue(early.config().getReceiveBufferSize() > 0, "the kernel's default is known before there is a socket");
        assertNull(early.localAddress());
        early.pipeline().addLast(new ChannelInboundHandlerAdapter());
        group.register(early).sync();
        early.connect(server.localAddress()).sync();
        assertTrue(early.config().isKeepAlive());
        assertFalse(early.config().isTcpNoDelay());
        assertEquals(3, early.config().getSoLinger());
        assertEquals(12_000, early.config().getOption(QuoitChannelOption.TCP_USER_TIMEOUT));
        early.config().setTcpNoDelay(true);
        assertTrue(early.config().isTcpNoDelay());
        QuoitSocketChannel child = (QuoitSocketChannel) accepted.next();
        assertTrue(child.config().isKeepAlive());
        assertTrue(child.config().isTcpNoDelay());
        assertEquals(early.localAddress(), child.remoteAddress());
        assertEquals(early.remoteAddress(), child.localAddress());
        assertTrue(early.config().getOptions().containsKey(ChannelOption.SO_SNDBUF));
        early.close().sync();
        assertThrows(IllegalArgumentException.class, () -> early.config().setOption(QuoitChannelOption.PENDING_WRITE_LIMIT, -1L));
    }

    @Test
    void aGroupAcceptsForAnother() throws Exception {
        EventLoopGroup boss = UnderTest.group(1);
        try {
            Peers.Accepted accepted = new Peers.Accepted(channel -> channel.pipeline().addLast(new Peers.Echo()));
            Channel server = new ServerBootstrap()
                    .group(boss, group)
                    .channel(QuoitServerSocketChannel.class)
                    .childHandler(accepted)
                    .bind("127.0.0.1", 0)
                    .sync()
                    .channel();
            Set<EventLoop> loops = new HashSet<>();
            for (int connection = 0; connection < 2; connection++) {
                try (java.net.Socket peer = Peers.connect(server)) {
                    peer.getOutputStream().write(7);
                    assertEquals(7, peer.getInputStream().read());
                    loops.add(accepted.next().eventLoop());
                }
            }
            assertEquals(2, loops.size(), "the worker's loops take turns");
            assertFalse(loops.contains(server.eventLoop()));
        } finally {
            boss.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aConnectTakesALocalAddress() throws Exception {
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = server().childHandler(accepted).bind("127.0.0.1", 0).sync().channel();
        Channel bound = client().register().sync().channel();
        bound.bind(new InetSocketAddress("127.0.0.1", 0)).sync();
        InetSocketAddress local = (InetSocketAddress) bound.localAddress();
        assertTrue(local.getPort() > 0);
        bound.connect(server.localAddress()).sync();
        assertEquals(local, accepted.next().remoteAddress());
        bound.close().sync();
    }

    @Test
    void anAddressIsFreeAsSoonAsItsServerIsClosed() throws Exception {
        Channel first = server().childHandler(new Peers.Accepted()).bind("127.0.0.1", 0).sync().channel();
        InetSocketAddress address = (InetSocketAddress) first.localAddress();
        Throwable taken = server().childHandler(new Peers.Accepted()).bind(address).await().cause();
        assertInstanceOf(java.net.BindException.class, taken);
        for (int round = 0; round < 20; round++) {
            first.close().sync();
            first = server().childHandler(new Peers.Accepted()).bind(address).sync().channel();
        }
        first.close().sync();
    }

    @Test
    void aChannelIsBoundOnce() throws Exception {
        InetSocketAddress any = new InetSocketAddress("127.0.0.1", 0);
        Channel server = server().childHandler(new Peers.Accepted()).bind(any).sync().channel();
        Channel client = client().register().sync().channel();
        client.bind(any).sync();
        for (Channel channel : List.of(server, client)) {
            Object address = channel.localAddress();
            assertInstanceOf(
                    AlreadyBoundException.class, channel.bind(any).await().cause());
            assertEquals(address, channel.localAddress());
            channel.close().sync();
        }
    }

    @Test
    void aRefusedConnectFailsWithTheAddress() throws Exception {
        // Bound and not listening: the port is nobody else's.
        try (SocketChannel bound = SocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0))) {
            int port = bound.socket().getLocalPort();
            ChannelFuture connect = client().connect("127.0.0.1", port).await();
            assertInstanceOf(ConnectException.class, connect.cause());
            assertTrue(
                    connect.cause().getMessage().contains(String.valueOf(port)),
                    connect.cause().getMessage());
            assertTrue(connect.channel().closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    @Test
    void aCancelledConnectClosesItsChannel() throws Exception {
        Channel server = server().childHandler(new Peers.Accepted()).bind("127.0.0.1", 0).sync().channel();
        for (int round = 0; round < 50; round++) {
            ChannelFuture connect = client().connect(server.localAddress());
            if (connect.cancel(false)) {
                assertTrue(connect.channel().closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            } else {
                connect.sync().channel().close().sync();
            }
        }
    }

    @Test
    void aConnectThatNobodyAnswersEndsByCancellingClosingItsTimeOutAndWithItsLoop() throws Exception {
        ChannelFuture cancelled = client().connect(SilentListener.address());
        assertTrue(cancelled.cancel(false));
        assertTrue(cancelled.channel().closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));

        ChannelFuture closed = client().register().sync().channel().connect(SilentListener.address());
        assertTrue(closed.channel().close().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertInstanceOf(ClosedChannelException.class, closed.await().cause());

        ChannelFuture late = client()
                .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, 1)
                .connect(SilentListener.address());
        assertTrue(late.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertInstanceOf(ConnectTimeoutException.class, late.cause());
        assertTrue(late.channel().closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));

        ChannelFuture left = client().register().sync().channel().connect(SilentListener.address());
        end();
        assertTrue(left.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertInstanceOf(ClosedChannelException.class, left.cause());
    }

    /** Before its loop knows the connection's id, and after. */
    @Test
    void closingDuringAConnectFailsIt() throws Exception {
        Channel server = server().childHandler(new Peers.Accepted()).bind("127.0.0.1", 0).sync().channel();
        for (int round = 0; round < 50; round++) {
            Channel channel = client().register().sync().channel();
            ChannelFuture[] connect = new ChannelFuture[1];
            ChannelFuture close = channel.eventLoop()
                    .submit(() -> {
                        connect[0] = channel.connect(server.localAddress());
                        return channel.close();
                    })
                    .get();
            assertTrue(close.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertInstanceOf(ClosedChannelException.class, connect[0].await().cause());
            assertFalse(channel.isOpen());
        }
        // From another thread, at any moment of the connect.
        for (int round = 0; round < 50; round++) {
            ChannelFuture connect = client().connect(server.localAddress());
            connect.channel().close();
            assertTrue(connect.channel().closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertTrue(connect.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
        group.submit(() -> {}).sync();
    }

    /** A closed channel is closed at once; what it could not send is given up after the time, by a reset. */
    @Test
    void lingerIsTheTimeOfAGracefulClose() throws Exception {
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = server().childOption(ChannelOption.SO_LINGER, 1)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        try (java.net.Socket peer = Peers.connect(server)) {
            Channel channel = accepted.next();
            channel.writeAndFlush(Peers.direct(new byte[64 << 20]));
            Peers.read(peer, 10);
            channel.close().sync();
            // Nobody reads, so the end never comes: a reset does.
            assertThrows(java.net.SocketException.class, () -> {
                while (true) {
                    peer.getOutputStream().write(new byte[1000]);
                }
            });
        }
    }

    @Test
    void aLoopMaySpinBeforeItSleeps() throws Exception {
        QuoitIoHandlerConfig config = UnderTest.config().withSpinBudget(1_000_000);
        assertEquals(
                1_000_000,
                config.toNative(NativeLoader.library()).getLong(Abi.Config.SPIN_NS));
        assertThrows(IllegalArgumentException.class, () -> config.withSpinBudget(-1));
        EventLoopGroup spinning = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        try {
            Channel server = Peers.serve(spinning, Peers.Echo::new);
            try (java.net.Socket peer = Peers.connect(server)) {
                for (int round = 0; round < 100; round++) {
                    peer.getOutputStream().write(round);
                    assertEquals(round, peer.getInputStream().read());
                }
            }
        } finally {
            spinning.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aLoopCoalescesOrSpins() {
        QuoitIoHandlerConfig defaults = UnderTest.config();
        QuoitIoHandlerConfig spinning = defaults.withSpinBudget(1_000_000);
        for (long nanos : new long[] {1_000, 100_000_000}) {
            ByteBuffer config = spinning.withCoalesceTime(nanos).toNative(NativeLoader.library());
            assertEquals(Abi.WAIT_COALESCE, config.getInt(Abi.Config.WAIT));
            assertEquals(nanos, config.getLong(Abi.Config.SPIN_NS));
        }
        for (long nanos : new long[] {-1, 1, 999, 100_000_001}) {
            assertThrows(IllegalArgumentException.class, () -> defaults.withCoalesceTime(nanos), "" + nanos);
        }
        QuoitIoHandlerConfig coalescing = defaults.withCoalesceTime(COALESCE_NANOS);
        assertEquals(Abi.WAIT_COALESCE, waits(coalescing.withSpinBudget(0)));
        assertEquals(Abi.WAIT_SPIN, waits(coalescing.withSpinBudget(1)));
        assertEquals(Abi.WAIT_SPIN, waits(spinning.withCoalesceTime(0)));
        assertEquals(waits(defaults), waits(coalescing.withCoalesceTime(0)));
    }

    private static int waits(QuoitIoHandlerConfig config) {
        return config.toNative(NativeLoader.library()).getInt(Abi.Config.WAIT);
    }

    @Test
    void aLoopThatCoalescesAnswersWhenItsTimeIsOver() throws Exception {
        final int mostRounds = 1000;
        final int wanted = 3;
        QuoitIoHandlerConfig config = UnderTest.config().withCoalesceTime(COALESCE_NANOS);
        EventLoopGroup coalescing = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        try {
            Channel server = Peers.serve(coalescing, Peers.Echo::new);
            try (java.net.Socket peer = Peers.connect(server)) {
                // Once it has answered the loop sleeps, and the next request does not wake it. On a busy machine some come only
                // when that time is over, and are answered at once; by far not all.
                int slept = 0;
                for (int round = 0; slept < wanted; round++) {
                    assertTrue(round < mostRounds, "it slept only " + slept + " times");
                    long begun = System.nanoTime();
                    peer.getOutputStream().write(round);
                    assertEquals(round & 0xff, peer.getInputStream().read());
                    slept += System.nanoTime() - begun >= COALESCE_NANOS / 2 ? 1 : 0;
                }
            }
        } finally {
            coalescing.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aLoopThatCoalescesIsNotWokenByItsScheduledTasks() throws Exception {
        final int tasks = 50;
        QuoitIoHandlerConfig config = UnderTest.config().withCoalesceTime(COALESCE_NANOS);
        EventLoopGroup coalescing = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        try {
            CountDownLatch run = new CountDownLatch(tasks);
            coalescing
                    .submit(() -> {
                        for (int task = 1; task <= tasks; task++) {
                            long delay = task * COALESCE_NANOS / tasks;
                            coalescing.next().schedule(run::countDown, delay, TimeUnit.NANOSECONDS);
                        }
                    })
                    .sync();
            long before = turnsOfTheNewestLoop();
            assertTrue(run.await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
            long turns = turnsOfTheNewestLoop() - before;
            assertTrue(turns < tasks / 2, turns + " turns");
        } finally {
            coalescing.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    private static long turnsOfTheNewestLoop() {
        QuoitLoopSnapshot newest = Quoit.loops().stream()
                .max(Comparator.comparingInt(QuoitLoopSnapshot::loop))
                .orElseThrow();
        return newest.metrics().stream()
                .filter(metric -> metric.name().equals("turns"))
                .mapToLong(QuoitMetric::value)
                .sum();
    }

    @Test
    void theLoopsFiguresCanBeHadByJmx() throws Exception {
        group.submit(() -> {}).sync();
        ObjectName name = QuoitJmx.register();
        try {
            assertEquals(name, QuoitJmx.register());
            var server = ManagementFactory.getPlatformMBeanServer();
            QuoitLoopsMXBean bean = JMX.newMXBeanProxy(server, name, QuoitLoopsMXBean.class);
            List<Integer> loops = Quoit.loops().stream().map(QuoitLoopSnapshot::loop).toList();
            assertFalse(loops.isEmpty());
            for (int loop : loops) {
                assertTrue(bean.getEngines().get(loop).startsWith(UnderTest.ENGINE + ": "), bean.getEngines().toString());
                assertTrue(bean.getFigures().get(loop).get("turns") >= 0);
                assertTrue(bean.getHistograms().get(loop).containsKey("write_bytes"));
            }
        } finally {
            QuoitJmx.unregister();
            QuoitJmx.unregister();
        }
        assertFalse(ManagementFactory.getPlatformMBeanServer().isRegistered(name));
    }

    @Test
    void aHandleThatFailsWhenItIsRegisteredIsForgotten() throws Exception {
        EventLoopGroup one = UnderTest.group(1);
        IllegalStateException failure = new IllegalStateException("as the test wants it");
        AtomicInteger closed = new AtomicInteger();
        QuoitIoHandle handle = new QuoitIoHandle() {
            @Override
            public void registered() {
                throw failure;
            }

            @Override
            public void handle(IoRegistration registration, IoEvent event) {
                throw new AssertionError("it has no events");
            }

            @Override
            public void close() {
                closed.incrementAndGet();
            }
        };
        try {
            assertSame(failure, ((IoEventLoop) one.next()).register(handle).await().cause());
        } finally {
            // The end of the loop closes what is registered.
            one.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
        assertEquals(0, closed.get());
    }

    @Test
    void wrongSettingsAreRefusedWithTheirName() {
        QuoitIoHandlerConfig config = QuoitIoHandlerConfig.defaults();
        assertTrue(assertThrows(IllegalArgumentException.class, () -> config.withQueues(100, 4096))
                .getMessage()
                .contains("submission"));
        assertThrows(IllegalArgumentException.class, () -> config.withConnections(0));
        assertThrows(IllegalArgumentException.class, () -> config.withReceivePool(1, 1024));
        assertThrows(IllegalArgumentException.class, () -> config.withOutboundWaterMarks(5000, 4096));
        assertThrows(IllegalArgumentException.class, () -> config.withZeroCopyThreshold(0));
        Throwable unknown = assertThrows(
                IllegalStateException.class,
                () -> new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config.withoutFeatures("no-such"))));
        assertTrue(unknown.getCause().getMessage().contains("no-such"), unknown.getCause().getMessage());
    }

    /** As many bytes to receive into, per loop and per connection, in slots that are as long as Netty's reads. */
    @Test
    void theDefaultsAreTheLibrarysButForLongerAndFewerSlots() {
        NativeLibrary library = NativeLoader.library();
        java.nio.ByteBuffer theirs = java.nio.ByteBuffer.allocateDirect(Abi.Config.STRUCT_SIZE)
                .order(java.nio.ByteOrder.nativeOrder());
        theirs.putInt(0, Abi.Config.STRUCT_SIZE);
        library.configDefault(library.address(theirs));
        int slots = theirs.getInt(Abi.Config.RECEIVE_SLOTS);
        int slotSize = theirs.getInt(Abi.Config.RECEIVE_SLOT_SIZE);
        int leases = theirs.getShort(Abi.Config.LEASES_PER_CONNECTION);
        QuoitIoHandlerConfig ours = QuoitIoHandlerConfig.defaults();
        assertEquals(64 << 10, ours.receiveSlotSize());
        assertEquals(slots * slotSize, ours.receiveSlots() * ours.receiveSlotSize());
        assertEquals(leases * slotSize, 2 * ours.leasesBeforeCopy() * ours.receiveSlotSize());
        assertEquals(
                theirs,
                ours.withReceivePool(slots, slotSize)
                        .withLeasesPerConnection(leases)
                        .toNative(library));
    }

    @Test
    void aGroupThatEndsSendsWhatItsChannelsHaveWritten() throws Exception {
        EventLoopGroup mine = UnderTest.group(1);
        Peers.Accepted accepted = new Peers.Accepted();
        Channel server = new ServerBootstrap()
                .group(mine)
                .channel(QuoitServerSocketChannel.class)
                .childHandler(accepted)
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        byte[] bytes = Peers.bytes(1500);
        try (java.net.Socket peer = Peers.connect(server)) {
            accepted.next().writeAndFlush(Peers.direct(bytes)).sync();
            mine.shutdownGracefully(0, 5, TimeUnit.SECONDS).sync();
            assertArrayEquals(bytes, Peers.read(peer, bytes.length));
            assertEquals(-1, peer.getInputStream().read());
        }
    }
}
