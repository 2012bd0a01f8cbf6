package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/** A datagram channel and its peer, a plain socket; and a port at which nobody listens. */
final class DatagramScene implements Traces.Stage {
    static final InetSocketAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0);

    private final Stock stock;
    private final SocketProtocolFamily family;
    final Trace trace = new Trace();
    final EventLoopGroup group;
    final DatagramSocket peer;
    /** It hears the peer only, and keeps the port from being taken. */
    private final DatagramSocket deaf;

    UnaryOperator<Bootstrap> options = bootstrap -> bootstrap;
    /** What the channel's handler does beside recording. */
    Recorder recorder = new Recorder();

    Channel channel;

    /** Of IPv4; or of IPv6 with IPv4 for null. */
    DatagramScene(Stock stock, SocketProtocolFamily family) throws IOException {
        this.stock = stock;
        this.family = family;
        group = Scene.group(stock);
        peer = new DatagramSocket(LOOPBACK);
        peer.setSoTimeout(Peers.PATIENCE_SECONDS * 1000);
        deaf = new DatagramSocket(LOOPBACK);
        deaf.connect(peer.getLocalSocketAddress());
    }

    @Override
    public Trace trace() {
        return trace;
    }

    InetSocketAddress peerAddress() {
        return (InetSocketAddress) peer.getLocalSocketAddress();
    }

    /** Where no datagram of the channel's is taken. */
    InetSocketAddress nobody() {
        return (InetSocketAddress) deaf.getLocalSocketAddress();
    }

    /** Who an address is; ports differ from run to run. */
    private String name(SocketAddress address) {
        if (address == null) {
            return "none";
        }
        if (address.equals(peerAddress())) {
            return "the peer";
        }
        if (address.equals(nobody())) {
            return "nobody";
        }
        InetSocketAddress inet = (InetSocketAddress) address;
        String host = inet.getAddress().isAnyLocalAddress() ? "any" : inet.getAddress().getHostAddress();
        return host + (inet.getPort() == 0 ? ":0" : ":port");
    }

    void register() throws InterruptedException {
        Bootstrap bootstrap = new Bootstrap()
                .group(group)
                .channelFactory(() -> stock == null ? new QuoitDatagramChannel(family) : stock.datagram(family))
                .handler(recorder);
        channel = options.apply(bootstrap).register().sync().channel();
    }

    ChannelFuture bindTo(SocketAddress address) throws InterruptedException {
        return of("bind", channel.bind(address));
    }

    void bind() throws InterruptedException {
        register();
        bindTo(LOOPBACK);
    }

    ChannelFuture connectTo(SocketAddress address) throws InterruptedException {
        return of("connect", channel.connect(address));
    }

    /** Waits for a future, and tells what became of it. */
    ChannelFuture of(String what, ChannelFuture future) throws InterruptedException {
        return trace.of(what, future).await();
    }

    static ByteBuf bytes(int length) {
        return Peers.direct(new byte[length]);
    }

    /** Writes, and tells what became of it, and of the message. */
    void write(Object message) throws InterruptedException {
        of("write", channel.writeAndFlush(message));
        trace.outcome("references " + ReferenceCountUtil.refCnt(message));
    }

    void write(int length, InetSocketAddress to) throws InterruptedException {
        write(new DatagramPacket(bytes(length), to));
    }

    void peerSends(int length) throws IOException {
        peer.send(new java.net.DatagramPacket(new byte[length], length, channel.localAddress()));
    }

    /** As {@link Scene#turn()}. */
    void turn() throws Exception {
        Scene.turn(group, stock);
    }

    /** The peer's next datagram. */
    void peerReceives() throws IOException {
        java.net.DatagramPacket room = new java.net.DatagramPacket(new byte[1 << 16], 1 << 16);
        peer.receive(room);
        trace.outcome("the peer has " + room.getLength() + " from " + name(room.getSocketAddress()));
    }

    /** Tells how the channel is, as far as it can be asked. */
    void state() {
        trace.outcome("open " + channel.isOpen() + ", active " + channel.isActive() + ", local "
                + name(channel.localAddress()) + ", remote " + name(channel.remoteAddress()));
    }

    void closeChannel() throws InterruptedException {
        of("close", channel.close());
    }

    @Override
    public void close() throws Exception {
        if (channel != null) {
            channel.close().await();
            if (!group.isShuttingDown()) {
                trace.await("unregistered");
            }
        }
        group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        peer.close();
        deaf.close();
    }

    /** Records datagrams one by one. */
    class Recorder extends Trace.Closely {
        Recorder() {
            trace.super();
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
            DatagramPacket packet = (DatagramPacket) message;
            trace.add("datagram of " + packet.content().readableBytes() + " from " + name(packet.sender()) + " to "
                    + name(packet.recipient()));
            packet.release();
        }
    }
}
