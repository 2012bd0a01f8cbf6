package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.epoll.EpollTcpInfo;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.PeerCredentials;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What the kernel tells of a connection and its peer, as of Netty's epoll transport. */
class PeersAreKnownTest {
    private static final InetSocketAddress LOOPBACK = new InetSocketAddress("127.0.0.1", 0);

    private interface Body {
        void run(Channel client) throws Exception;
    }

    /** A client of a server on the same transport. */
    private static void connected(
            IoHandlerFactory factory,
            Class<? extends io.netty.channel.ServerChannel> server,
            Class<? extends Channel> client,
            SocketAddress address,
            Body body)
            throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, factory);
        try {
            Channel listener = new ServerBootstrap()
                    .group(group)
                    .channel(server)
                    .childHandler(new ChannelInboundHandlerAdapter())
                    .bind(address)
                    .sync()
                    .channel();
            Channel made = new Bootstrap()
                    .group(group)
                    .channel(client)
                    .handler(new ChannelInboundHandlerAdapter())
                    .connect(listener.localAddress())
                    .sync()
                    .channel();
            body.run(made);
        } finally {
            group.shutdownGracefully(0, 0, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void theKernelTellsOfAConnection() throws Exception {
        List<Long> stock = null;
        List<Long> ours = null;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while ((stock == null || !stock.equals(ours)) && System.nanoTime() < end) {
            EpollTcpInfo[] info = new EpollTcpInfo[1];
            connected(
                    EpollIoHandler.newFactory(),
                    EpollServerSocketChannel.class,
                    EpollSocketChannel.class,
                    LOOPBACK,
                    client -> info[0] = ((EpollSocketChannel) client).tcpInfo());
            stock = List.of(info[0].sndSsthresh(), info[0].sndCwnd(), info[0].reordering());
            ours = learntBesideWhatIsAsOf(info[0]);
        }
        // The kernel begins with what it has learnt from earlier connections to the address, and others teach it.
        assertEquals(stock, ours, "ssthresh, cwnd, reordering");
    }

    /** Compares what does not depend on the moment, and returns what may change between two connections. */
    private static List<Long> learntBesideWhatIsAsOf(EpollTcpInfo stock) throws Exception {
        List<Long> learnt = new ArrayList<>();
        connected(
                QuoitIoHandler.newFactory(UnderTest.config()),
                QuoitServerSocketChannel.class,
                QuoitSocketChannel.class,
                LOOPBACK,
                client -> {
                    QuoitSocketChannel ours = (QuoitSocketChannel) client;
                    QuoitTcpInfo info = ours.tcpInfo();
                    assertEquals(stock.state(), info.state());
                    assertEquals(stock.caState(), info.caState());
                    assertEquals(stock.options(), info.options());
                    assertEquals(stock.sndWscale(), info.sndWscale());
                    assertEquals(stock.rcvWscale(), info.rcvWscale());
                    assertEquals(stock.sndMss(), info.sndMss());
                    assertEquals(stock.advmss(), info.advmss());
                    assertEquals(stock.pmtu(), info.pmtu());
                    assertEquals(stock.totalRetrans(), info.totalRetrans());
                    assertTrue(info.rto() > 0, info.toString());
                    learnt.addAll(List.of(info.sndSsthresh(), info.sndCwnd(), info.reordering()));
                    ours.close().sync();
                    assertThrows(ChannelException.class, ours::tcpInfo);
                });
        return learnt;
    }

    @Test
    void aUnixSocketsPeerIsKnown() throws Exception {
        Path folder = Files.createTempDirectory("quoit");
        PeerCredentials[] stock = new PeerCredentials[1];
        connected(
                EpollIoHandler.newFactory(),
                EpollServerDomainSocketChannel.class,
                EpollDomainSocketChannel.class,
                new DomainSocketAddress(folder.resolve("stock").toString()),
                client -> stock[0] = ((EpollDomainSocketChannel) client).peerCredentials());
        connected(
                QuoitIoHandler.newFactory(UnderTest.config()),
                QuoitServerDomainSocketChannel.class,
                QuoitDomainSocketChannel.class,
                new DomainSocketAddress(folder.resolve("ours").toString()),
                client -> {
                    QuoitDomainSocketChannel ours = (QuoitDomainSocketChannel) client;
                    QuoitPeerCredentials peer = ours.peerCredentials();
                    assertEquals(ProcessHandle.current().pid(), peer.pid());
                    assertEquals(stock[0].pid(), peer.pid());
                    assertEquals(stock[0].uid(), peer.uid());
                    assertEquals(stock[0].gids()[0], peer.gid());
                    ours.close().sync();
                    assertThrows(IOException.class, ours::peerCredentials);
                });
    }
}
