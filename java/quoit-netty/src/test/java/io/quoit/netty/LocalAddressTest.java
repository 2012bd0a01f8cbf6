package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.SocketAddress;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A client's own address, where its peer has one of the other family: each on Netty's epoll first, and the same on this transport. */
class LocalAddressTest {
    private final Peers.Accepted accepted = new Peers.Accepted();
    private EventLoopGroup group;

    @BeforeEach
    void hasBothFamilies() throws Exception {
        assumeTrue(NetworkInterface.getByInetAddress(InetAddress.getByName("::1")) != null, "there is no ::1");
    }

    @AfterEach
    void end() throws Exception {
        if (group != null) {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    private Channel serve(Side side, String host) throws Exception {
        group = side.group(UnderTest.config());
        return side.bootstrap(group).childHandler(accepted).bind(host, 0).sync().channel();
    }

    private Bootstrap client(Side side) {
        return new Bootstrap().group(group).channel(side.streamClass()).handler(new ChannelInboundHandlerAdapter());
    }

    private static int port(SocketAddress address) {
        return ((InetSocketAddress) address).getPort();
    }

    @ParameterizedTest
    @CsvSource({"STOCK,::1,0.0.0.0", "OURS,::1,0.0.0.0", "STOCK,127.0.0.1,::", "OURS,127.0.0.1,::"})
    void aConnectTakesAnyAddressOfTheOtherFamily(Side side, String host, String any) throws Exception {
        Channel server = serve(side, host);
        Channel client = client(side)
                .connect(server.localAddress(), new InetSocketAddress(any, 0))
                .sync()
                .channel();
        assertEquals(client.localAddress(), accepted.next().remoteAddress());
        assertEquals(server.localAddress(), client.remoteAddress());
    }

    @ParameterizedTest
    @CsvSource({"STOCK,::1,0.0.0.0", "OURS,::1,0.0.0.0", "STOCK,127.0.0.1,::", "OURS,127.0.0.1,::"})
    void aPortThatWasBoundIsKept(Side side, String host, String any) throws Exception {
        Channel server = serve(side, host);
        Channel client = client(side).register().sync().channel();
        client.bind(new InetSocketAddress(any, 0)).sync();
        int port = port(client.localAddress());
        client.connect(server.localAddress()).sync();
        assertEquals(port, port(client.localAddress()));
        assertEquals(port, port(accepted.next().remoteAddress()));
    }

    @ParameterizedTest
    @CsvSource({"STOCK,::1,127.0.0.1", "OURS,::1,127.0.0.1", "STOCK,127.0.0.1,::1", "OURS,127.0.0.1,::1"})
    void oneAddressOfTheOtherFamilyCannotConnect(Side side, String host, String local) throws Exception {
        Channel server = serve(side, host);
        Throwable failure = client(side)
                .connect(server.localAddress(), new InetSocketAddress(local, 0))
                .await()
                .cause();
        assertInstanceOf(IOException.class, failure);
    }
}
