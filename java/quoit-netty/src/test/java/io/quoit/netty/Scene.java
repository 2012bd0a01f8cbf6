package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.socket.DuplexChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A server, its only connection, and that one's peer. */
final class Scene implements Traces.Stage {
    interface MakesRecorder {
        Trace.Recorder of(Trace trace);
    }

    interface Options {
        ServerBootstrap on(ServerBootstrap bootstrap);
    }

    private final Stock stock;
    private final Path folder;
    final Trace trace = new Trace();
    private final LinkedBlockingQueue<Channel> accepted = new LinkedBlockingQueue<>();
    final EventLoopGroup group;

    Options options = bootstrap -> bootstrap;
    MakesRecorder recorder = trace -> trace.new Recorder();
    int connectMillis = 30_000;

    Channel server;
    Channel child;
    SocketChannel peer;
    private volatile ChannelFuture lastWrite;

    /** On TCP, or on Unix sockets with a folder for them. */
    private Scene(Stock stock, Path folder) {
        this.stock = stock;
        this.folder = folder;
        group = group(stock);
    }

    static Scene onTcp(Stock stock) {
        return new Scene(stock, null);
    }

    static Scene onUnixSockets(Stock stock) throws IOException {
        return new Scene(stock, Files.createTempDirectory("quoit"));
    }

    /** A group of one loop. */
    static EventLoopGroup group(Stock stock) {
        return new MultiThreadIoEventLoopGroup(
                1, stock == null ? QuoitIoHandler.newFactory(UnderTest.config()) : stock.factory());
    }

    @Override
    public Trace trace() {
        return trace;
    }

    private Class<? extends ServerChannel> serverClass() {
        if (folder == null) {
            return stock == null ? QuoitServerSocketChannel.class : stock.serverClass;
        }
        return stock == null ? QuoitServerDomainSocketChannel.class : EpollServerDomainSocketChannel.class;
    }

    private Class<? extends Channel> clientClass() {
        if (folder == null) {
            return stock == null ? QuoitSocketChannel.class : stock.streamClass;
        }
        return stock == null ? QuoitDomainSocketChannel.class : EpollDomainSocketChannel.class;
    }

    ServerBootstrap bootstrap() {
        ServerBootstrap bootstrap = new ServerBootstrap()
                .group(group)
                .channel(serverClass())
                .childOption(ChannelOption.SO_SNDBUF, Peers.NARROW_BYTES)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        accepted.add(channel);
                        channel.pipeline().addLast(recorder.of(trace));
                    }
                });
        return options.on(bootstrap);
    }

    void listen() throws InterruptedException {
        server = bootstrap()
                .bind(folder == null
                        ? new InetSocketAddress("127.0.0.1", 0)
                        : new DomainSocketAddress(folder.resolve("socket").toString()))
                .sync()
                .channel();
    }

    void connectPeer() throws IOException {
        peer = SocketChannel.open(folder == null ? StandardProtocolFamily.INET : StandardProtocolFamily.UNIX);
        peer.setOption(StandardSocketOptions.SO_RCVBUF, Peers.NARROW_BYTES);
        peer.connect(
                folder == null ? server.localAddress() : UnixDomainSocketAddress.of(folder.resolve("socket")));
    }

    void connect() throws Exception {
        listen();
        connectPeer();
        accept();
        trace.await("active");
    }

    /** Connects to a server that does not accept yet. */
    void acceptLate() throws Exception {
        Options before = options;
        options = bootstrap -> before.on(bootstrap).option(ChannelOption.AUTO_READ, false);
        listen();
        connectPeer();
    }

    void accept() throws InterruptedException {
        server.config().setAutoRead(true);
        child = accepted.poll(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS);
    }

    /**
     * Has another connection of the same loop answered: what the kernel had for the loop before, the loop has seen by then, as
     * far as it looks at it.
     */
    void turn() throws Exception {
        turn(group, stock);
    }

    /** As {@link #turn()}, of a group of one loop. */
    static void turn(EventLoopGroup group, Stock stock) throws Exception {
        Channel echo = new ServerBootstrap()
                .group(group)
                .channel(stock == null ? QuoitServerSocketChannel.class : stock.serverClass)
                .childHandler(Peers.each(Peers.Echo::new))
                .bind(new InetSocketAddress("127.0.0.1", 0))
                .sync()
                .channel();
        try (SocketChannel other = SocketChannel.open(echo.localAddress())) {
            for (int round = 0; round < 2; round++) {
                other.write(ByteBuffer.allocate(1));
                other.read(ByteBuffer.allocate(1));
            }
        }
        echo.close().sync();
    }

    ChannelFuture connectTo(SocketAddress address) {
        ChannelFuture connecting = new Bootstrap()
                .group(group)
                .channel(clientClass())
                .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, connectMillis)
                .handler(trace.recorder())
                .connect(address);
        return trace.of("connect", connecting);
    }

    void peerSends(int length) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(length);
        while (bytes.hasRemaining()) {
            peer.write(bytes);
        }
    }

    void peerResets() throws IOException {
        peer.setOption(StandardSocketOptions.SO_LINGER, 0);
        peer.close();
    }

    /** Waits until the transport knows of the peer's reset: elsewhere that is when the channel is closed. */
    void awaitReset() throws InterruptedException {
        if (!(child instanceof AbstractQuoitStreamChannel ours)) {
            trace.await("inactive");
            return;
        }
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (ours.handler().metrics().snapshot().value("closed_reset") == 0) {
            if (System.nanoTime() > giveUp) {
                throw new AssertionError("no reset is told of");
            }
            Thread.onSpinWait();
        }
    }

    /** Tells all that comes, and how it ends. */
    void peerReads() {
        long length = 0;
        String end = "its end";
        ByteBuffer room = ByteBuffer.allocate(64 << 10);
        try {
            for (int read = peer.read(room); read >= 0; read = peer.read(room)) {
                length += read;
                room.clear();
            }
        } catch (IOException reset) {
            end = Trace.kind(reset);
        }
        trace.outcome("the peer reads " + length + " and " + end);
    }

    /** Reads so many bytes. */
    void peerReads(int length) throws IOException {
        ByteBuffer room = ByteBuffer.allocate(length);
        int read = 0;
        while (room.hasRemaining() && read >= 0) {
            read = peer.read(room);
        }
        trace.outcome("the peer reads " + room.position());
    }

    /** Reads the first byte of what comes, so that the rest has come, too. */
    void peerReadsOne() throws IOException {
        peer.read(ByteBuffer.allocate(1));
    }

    ChannelFuture write(int length) {
        return write(child, length);
    }

    /** As a handler that does not wait until the scene knows of its channel. */
    ChannelFuture write(Channel channel, int length) {
        lastWrite = trace.of("write of " + length, channel.writeAndFlush(Peers.direct(new byte[length])));
        return lastWrite;
    }

    void awaitWrite() throws InterruptedException {
        lastWrite.await();
    }

    void shutdownOutput() throws InterruptedException {
        trace.of("shutdownOutput", ((DuplexChannel) child).shutdownOutput()).sync();
    }

    void serverCloses() throws InterruptedException {
        trace.of("close", child.close()).sync();
    }

    @Override
    public void close() throws Exception {
        if (peer != null) {
            peer.close();
        }
        if (!group.isShuttingDown()) {
            for (Channel open : new Channel[] {child, server}) {
                if (open != null) {
                    open.close().await();
                }
            }
            // What they are told of that comes in a task behind.
            group.next().submit(() -> {}).sync();
            group.next().submit(() -> {}).sync();
        }
        group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        if (folder != null) {
            Files.deleteIfExists(folder.resolve("socket"));
            Files.deleteIfExists(folder);
        }
    }
}
