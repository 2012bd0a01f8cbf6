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
import org.junit.jupiter.api.Test;

/** What the kernel tells of a connection and its peer, as of Netty's epoll transport. */
class PeersAreKnownTest {
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
            group.shutdownGracefully(0, 0, java.util.concurrent.TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void theKernelTellsOfAConnection() throws Exception {
        InetSocketAddress loopback = new InetSocketAddress("127.0.0.1", 0);
        EpollTcpInfo[] stock = new EpollTcpInfo[1];
        connected(
                EpollIoHandler.newFactory(),
                EpollServerSocketChannel.class,
                EpollSocketChannel.class,
                loopback,
                client -> stock[0] = ((EpollSocketChannel) client).tcpInfo());
        connected(
                QuoitIoHandler.newFactory(UnderTest.config()),
                QuoitServerSocketChannel.class,
                QuoitSocketChannel.class,
                loopback,
                client -> {
                    QuoitSocketChannel ours = (QuoitSocketChannel) client;
                    QuoitTcpInfo info = ours.tcpInfo();
                    // What does not depend on the moment.
                    assertEquals(stock[0].state(), info.state());
                    assertEquals(stock[0].caState(), info.caState());
                    assertEquals(stock[0].options(), info.options());
                    assertEquals(stock[0].sndWscale(), info.sndWscale());
                    assertEquals(stock[0].rcvWscale(), info.rcvWscale());
                    assertEquals(stock[0].sndMss(), info.sndMss());
                    assertEquals(stock[0].advmss(), info.advmss());
                    assertEquals(stock[0].pmtu(), info.pmtu());
                    assertEquals(stock[0].sndSsthresh(), info.sndSsthresh());
                    assertEquals(stock[0].sndCwnd(), info.sndCwnd());
                    assertEquals(stock[0].reordering(), info.reordering());
                    assertEquals(stock[0].totalRetrans(), info.totalRetrans());
                    assertTrue(info.rto() > 0, info.toString());
                    ours.close().sync();
                    assertThrows(ChannelException.class, ours::tcpInfo);
                });
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
