package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What a turn tells of the sends that it was given: behind other events of it, or only with those of the turn after it. */
class FullTurnTest {
    /** More than the list holds to which a turn writes its events, so that one turn does not tell all of another. */
    private static final int CONNECTIONS = 1100;

    private static final int LISTED_EVENTS = 1024;

    private final List<Socket> clients = new ArrayList<>();
    private EventLoopGroup group;
    private Peers.Keeper keeper;
    private Peers.Accepted accepted;

    @BeforeEach
    void begin() {
        Assumptions.assumeFalse(UnderTest.SMALL, "nothing is copied with small limits");
        keeper = new Peers.Keeper();
        accepted = new Peers.Accepted(channel -> channel.pipeline().addLast(keeper));
        group = new MultiThreadIoEventLoopGroup(
                1, QuoitIoHandler.newFactory(UnderTest.config().withCompletionsPerTurn(4 * LISTED_EVENTS)));
    }

    @AfterEach
    void end() throws Exception {
        if (group == null) {
            // It was left out.
            return;
        }
        for (Socket client : clients) {
            client.close();
        }
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private QuoitSocketChannel open(Channel server) throws Exception {
        Socket client = Peers.connect(server);
        clients.add(client);
        return accepted.next(client);
    }

    /** The library has the batch with the first byte, and may still refuse it: nothing can become part of that send. */
    @Test
    void whatIsFlushedAmidTheEventsOfATurnThatDoesNotTellAllFollows() throws Exception {
        Channel server = Peers.serve(group, QuoitServerSocketChannel.class, accepted, new InetSocketAddress("127.0.0.1", 0));
        QuoitSocketChannel counted = open(server);
        List<QuoitSocketChannel> others = new ArrayList<>();
        while (others.size() < CONNECTIONS) {
            others.add(open(server));
        }
        // More than is copied, and less than is offered to the kernel in the midst of a flush.
        byte[] lent = Peers.bytes(4 << 10);
        byte[] expected = Peers.bytes(1 + CONNECTIONS);
        group.submit(() -> {
                    int[] next = {0};
                    Runnable one = () -> counted.writeAndFlush(Peers.direct(new byte[] {expected[next[0]++]}));
                    one.run();
                    for (QuoitSocketChannel other : others) {
                        ChannelFuture sent = other.writeAndFlush(Peers.direct(lent));
                        assertTrue(other.outbound().lends());
                        sent.addListener(done -> one.run());
                    }
                })
                .sync();
        assertArrayEquals(expected, Peers.read(clients.get(0), expected.length));
        assertEquals(0, clients.get(0).getInputStream().available());
        QuoitHistogram events =
                group.submit(() -> counted.handler().metrics().snapshot()).get().histogram("turn_events");
        assertTrue(events.percentile(1) >= LISTED_EVENTS, "no turn was full: " + events);
    }

    /**
     * Of a Unix socket, one direction alone can be gone. Once a write has found that, the next is refused, and ends the
     * channel: behind the bytes that the same turn brings.
     */
    @Test
    void aRefusedWriteEndsTheChannelBehindWhatCameInTheSameTurn(@TempDir Path folder) throws Exception {
        byte[] bytes = Peers.bytes(100);
        SocketAddress address = UnixDomainSocketAddress.of(folder.resolve("socket"));
        Peers.serve(group, QuoitServerDomainSocketChannel.class, accepted, address);
        try (SocketChannel client = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            client.connect(address);
            AbstractQuoitStreamChannel channel = (AbstractQuoitStreamChannel) accepted.next();
            channel.writeAndFlush(Peers.direct(new byte[1])).sync();
            client.read(ByteBuffer.allocate(1));
            client.shutdownInput();
            channel.writeAndFlush(Peers.direct(new byte[1])).sync();
            long turns = turns(channel);
            while (turns(channel) < turns + 2) {
                // Each look is a turn: the write has left with the first.
            }
            group.submit(() -> {
                        client.write(ByteBuffer.wrap(bytes));
                        return channel.writeAndFlush(Peers.direct(new byte[1]));
                    })
                    .sync();
            byte[] received = new byte[bytes.length];
            keeper.message().readBytes(received).release();
            assertArrayEquals(bytes, received);
            assertTrue(channel.closeFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    private long turns(AbstractQuoitStreamChannel channel) throws Exception {
        return group.submit(() -> channel.handler().metrics().snapshot().value("turns")).get();
    }
}
