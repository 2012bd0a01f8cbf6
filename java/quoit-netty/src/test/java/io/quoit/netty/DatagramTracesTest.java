package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultAddressedEnvelope;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.DatagramPacket;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntUnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Datagram channels, as far as their users can see them: on Netty's epoll transport first, and the same on this one. */
class DatagramTracesTest {
    private static final int MANY = 1000;

    private enum Scenario {
        IS_BOUND_AND_CLOSED(scene -> {
            scene.register();
            scene.state();
            scene.bindTo(DatagramScene.LOOPBACK);
            scene.state();
            scene.closeChannel();
            scene.state();
        }),
        IS_CLOSED_BEFORE_IT_IS_BOUND(scene -> {
            scene.register();
            scene.closeChannel();
            scene.bindTo(DatagramScene.LOOPBACK);
            scene.state();
        }),
        IS_ACTIVE_ON_REGISTRATION(scene -> {
            scene.options = bootstrap -> bootstrap.option(activeOnRegistration(), true);
            scene.register();
            scene.trace.await("active");
            scene.write(3, scene.peerAddress());
            scene.peerReceives();
        }),
        FIRST_READ_IS_WITHHELD(scene -> {
            AtomicBoolean withheld = new AtomicBoolean(true);
            scene.recorder = scene.new Recorder() {
                @Override
                public void handlerAdded(ChannelHandlerContext context) {
                    context.pipeline().addFirst(new ChannelDuplexHandler() {
                        @Override
                        public void read(ChannelHandlerContext context) throws Exception {
                            if (!withheld.get()) {
                                super.read(context);
                            }
                        }
                    });
                }
            };
            scene.bind();
            scene.peerSends(3);
            scene.turn();
            withheld.set(false);
            scene.trace.add("reads");
            scene.channel.read();
            scene.trace.await("read complete");
        }),
        IS_BOUND_TWICE(scene -> {
            scene.bind();
            scene.bindTo(DatagramScene.LOOPBACK);
            scene.state();
        }),
        ADDRESS_IS_IN_USE(scene -> {
            scene.register();
            scene.bindTo(scene.peerAddress());
            scene.state();
        }),
        ADDRESS_IS_NOT_HERE(scene -> {
            scene.register();
            // TEST-NET-1 (RFC 5737).
            scene.bindTo(new InetSocketAddress("192.0.2.1", 0));
            scene.state();
        }),
        ADDRESS_IS_UNRESOLVED(scene -> {
            scene.register();
            scene.bindTo(InetSocketAddress.createUnresolved("nobody.invalid", 1));
            scene.state();
        }),
        ADDRESS_IS_OF_A_UNIX_SOCKET(scene -> {
            scene.register();
            scene.bindTo(new DomainSocketAddress("nowhere"));
            scene.state();
        }),
        CONNECTS_TO_AN_UNRESOLVED_ADDRESS(scene -> {
            scene.register();
            scene.connectTo(InetSocketAddress.createUnresolved("nobody.invalid", 1));
            scene.state();
        }),
        CONNECTS_TO_A_UNIX_SOCKET(scene -> {
            scene.register();
            scene.connectTo(new DomainSocketAddress("nowhere"));
            scene.state();
        }),
        CONNECTS_TO_ALL_WITHOUT_THE_OPTION(scene -> {
            scene.bind();
            scene.connectTo(new InetSocketAddress("127.255.255.255", scene.peerAddress().getPort()));
            scene.trace.outcome("open " + scene.channel.isOpen());
        }),
        RECEIVES(scene -> {
            scene.bind();
            for (int length = 1; length <= 3; length++) {
                scene.peerSends(length);
                scene.trace.await("read complete", length);
            }
        }),
        RECEIVES_NOTHING_AT_ALL(scene -> {
            scene.bind();
            scene.peerSends(0);
            scene.trace.await("read complete");
            scene.peerSends(2);
            scene.trace.await("read complete", 2);
        }),
        RECEIVES_MORE_THAN_IT_HAS_ROOM_FOR(scene -> {
            scene.options = bootstrap -> bootstrap.option(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(4));
            scene.bind();
            scene.peerSends(10);
            scene.trace.await("read complete");
            scene.peerSends(3);
            scene.trace.await("read complete", 2);
        }),
        RECEIVES_A_LONG_ONE(scene -> {
            scene.bind();
            scene.peerSends(3000);
            scene.trace.await("read complete");
        }),
        RECEIVES_ONE_BY_ONE(scene -> {
            scene.options = bootstrap -> bootstrap.option(ChannelOption.AUTO_READ, false);
            scene.bind();
            scene.peerSends(1);
            scene.peerSends(2);
            scene.channel.read();
            scene.trace.await("read complete");
            scene.channel.eventLoop().submit(() -> {}).sync();
            scene.trace.add("nothing more");
            scene.channel.read();
            scene.trace.await("read complete", 2);
        }),
        RECEIVES_UNTIL_ITS_HANDLER_WANTS_NO_MORE(scene -> {
            scene.recorder = scene.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    context.channel().config().setAutoRead(false);
                }
            };
            scene.bind();
            scene.peerSends(1);
            scene.trace.await("read complete");
            scene.peerSends(2);
            scene.channel.eventLoop().submit(() -> {}).sync();
            scene.trace.add("autoRead is on again");
            scene.channel.config().setAutoRead(true);
            scene.trace.await("read complete", 2);
        }),
        HANDLER_FAILS_AS_IT_READS(scene -> {
            scene.recorder = scene.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    throw new IllegalStateException("the handler's own");
                }
            };
            scene.bind();
            scene.peerSends(1);
            scene.trace.await("read complete");
            scene.peerSends(2);
            scene.trace.await("read complete", 2);
        }),
        HANDLER_CLOSES_AS_IT_READS(scene -> {
            scene.recorder = scene.new Recorder() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    super.channelRead(context, message);
                    context.close();
                }
            };
            scene.bind();
            scene.peerSends(1);
            scene.trace.await("unregistered");
        }),
        SENDS(scene -> {
            scene.bind();
            scene.write(1, scene.peerAddress());
            scene.write(new DefaultAddressedEnvelope<>(DatagramScene.bytes(2), scene.peerAddress()));
            for (int count = 0; count < 2; count++) {
                scene.peerReceives();
            }
        }),
        SENDS_BEFORE_IT_IS_BOUND(scene -> {
            scene.register();
            scene.write(1, scene.peerAddress());
            scene.state();
        }),
        SENDS_NOTHING_AT_ALL(scene -> {
            scene.bind();
            scene.connectTo(scene.peerAddress());
            scene.write(0, scene.peerAddress());
            scene.write(DatagramScene.bytes(0));
            scene.write(DatagramScene.bytes(3));
            scene.peerReceives();
        }),
        SENDS_TOO_LONG_A_ONE(scene -> {
            scene.options = DatagramTracesTest::neverUnwritable;
            scene.bind();
            scene.write(70_000, scene.peerAddress());
            scene.write(3, scene.peerAddress());
            scene.peerReceives();
        }),
        SENDS_TOO_LONG_A_ONE_AMONG_OTHERS(scene -> {
            scene.options = DatagramTracesTest::neverUnwritable;
            scene.bind();
            for (int length : new int[] {1, 70_000, 3}) {
                scene.trace.of(
                        "write of " + length,
                        scene.channel.write(new DatagramPacket(DatagramScene.bytes(length), scene.peerAddress())));
            }
            scene.channel.flush();
            scene.peerReceives();
            scene.peerReceives();
        }),
        SENDS_TO_NOBODY(scene -> {
            scene.bind();
            scene.write(1, scene.nobody());
            scene.write(2, scene.peerAddress());
            scene.peerReceives();
        }),
        SENDS_TO_NO_ADDRESS(scene -> {
            scene.bind();
            scene.write(DatagramScene.bytes(1));
            scene.write(new DefaultAddressedEnvelope<>(DatagramScene.bytes(1), null, scene.peerAddress()));
            scene.write(new DatagramPacket(DatagramScene.bytes(1), null, scene.peerAddress()));
        }),
        SENDS_TO_AN_UNRESOLVED_ADDRESS(scene -> {
            scene.bind();
            scene.write(1, InetSocketAddress.createUnresolved("nobody.invalid", 1));
        }),
        SENDS_TO_A_UNIX_SOCKET(scene -> {
            scene.bind();
            scene.write(new DefaultAddressedEnvelope<>(DatagramScene.bytes(1), new DomainSocketAddress("nowhere")));
        }),
        SENDS_TO_PORT_ZERO(scene -> {
            scene.bind();
            scene.write(1, DatagramScene.LOOPBACK);
        }),
        SENDS_TO_ALL_WITHOUT_THE_OPTION(scene -> {
            scene.bind();
            scene.write(1, new InetSocketAddress("127.255.255.255", scene.peerAddress().getPort()));
        }),
        SENDS_WHAT_IS_NO_DATAGRAM(scene -> {
            scene.bind();
            scene.write("a text");
            scene.write(new DefaultAddressedEnvelope<>("a text", scene.peerAddress()));
        }),
        SENDS_MANY(scene -> {
            scene.options = bootstrap ->
                    bootstrap.option(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(1000, 100_000));
            scene.bind();
            List<ChannelFuture> written = new ArrayList<>();
            scene.channel
                    .eventLoop()
                    .submit(() -> {
                        for (int count = 0; count < MANY; count++) {
                            written.add(scene.channel.write(
                                    new DatagramPacket(DatagramScene.bytes(100), scene.peerAddress())));
                        }
                        scene.trace.add("before " + scene.channel.bytesBeforeWritable());
                        scene.channel.flush();
                    })
                    .sync();
            scene.trace.await("writable true");
            for (ChannelFuture each : written) {
                each.sync();
            }
            scene.trace.outcome("all done");
        }),
        IS_CLOSED_BEHIND_A_FLUSH(scene -> {
            scene.bind();
            scene.channel
                    .eventLoop()
                    .submit(() -> {
                        scene.trace.of(
                                "write",
                                scene.channel.writeAndFlush(
                                        new DatagramPacket(DatagramScene.bytes(3), scene.peerAddress())));
                        scene.trace.of("close", scene.channel.close());
                    })
                    .sync();
            scene.peerReceives();
            scene.channel.closeFuture().sync();
        }),
        IS_CLOSED_BEHIND_A_FLUSH_OF_MANY(scene -> closeBehindMany(scene, count -> 1000)),
        IS_CLOSED_BEHIND_A_FLUSH_WITH_ONE_THAT_IS_TOO_LONG(
                scene -> closeBehindMany(scene, count -> count % 300 == 299 ? 70_000 : 10)),
        IS_CLOSED_BEFORE_A_FLUSH(scene -> {
            scene.bind();
            scene.channel
                    .eventLoop()
                    .submit(() -> {
                        scene.trace.of(
                                "write",
                                scene.channel.write(
                                        new DatagramPacket(DatagramScene.bytes(3), scene.peerAddress())));
                        scene.trace.of("close", scene.channel.close());
                    })
                    .sync();
            scene.channel.closeFuture().sync();
        }),
        IS_USED_WHEN_CLOSED(scene -> {
            scene.bind();
            scene.closeChannel();
            scene.write(1, scene.peerAddress());
            scene.write("a text");
            scene.connectTo(scene.peerAddress());
            scene.channel.read();
            scene.closeChannel();
            scene.state();
        }),
        DISCONNECTS_WHEN_CLOSED(scene -> {
            scene.bind();
            scene.closeChannel();
            scene.of("disconnect", scene.channel.disconnect());
        }),
        WRITE_IS_CANCELLED(scene -> {
            scene.bind();
            scene.channel
                    .eventLoop()
                    .submit(() -> {
                        for (int length = 1; length <= 3; length++) {
                            ChannelFuture written = scene.trace.of(
                                    "write of " + length,
                                    scene.channel.write(
                                            new DatagramPacket(DatagramScene.bytes(length), scene.peerAddress())));
                            if (length == 2) {
                                written.cancel(false);
                            }
                        }
                        scene.channel.flush();
                    })
                    .sync();
            scene.peerReceives();
            scene.peerReceives();
        }),
        CONNECTS(scene -> {
            scene.bind();
            scene.connectTo(scene.peerAddress());
            scene.state();
            scene.write(DatagramScene.bytes(1));
            scene.peerReceives();
            scene.peerSends(2);
            scene.trace.await("read complete");
            scene.closeChannel();
            scene.state();
        }),
        DISCONNECTS(scene -> {
            scene.bind();
            scene.connectTo(scene.peerAddress());
            scene.of("disconnect", scene.channel.disconnect());
            scene.state();
            scene.write(DatagramScene.bytes(1));
            scene.write(4, scene.peerAddress());
        }),
        CONNECTS_BEFORE_IT_IS_BOUND(scene -> {
            scene.register();
            scene.connectTo(scene.peerAddress());
            scene.state();
            scene.write(DatagramScene.bytes(1));
            scene.peerReceives();
        }),
        CONNECTS_TWICE(scene -> {
            scene.bind();
            scene.connectTo(scene.peerAddress());
            scene.connectTo(scene.nobody());
            scene.state();
        }),
        DISCONNECTS_WITHOUT_A_PEER(scene -> {
            scene.bind();
            scene.of("disconnect", scene.channel.disconnect());
            scene.state();
        }),
        CONNECTS_AND_SENDS_TO_SOMEBODY_ELSE(scene -> {
            scene.bind();
            scene.connectTo(scene.nobody());
            scene.write(1, scene.peerAddress());
            scene.peerReceives();
        }),
        CONNECTS_TO_NOBODY(scene -> {
            scene.bind();
            scene.connectTo(scene.nobody());
            scene.write(DatagramScene.bytes(1));
            scene.trace.await("exception PortUnreachableException");
            scene.write(2, scene.nobody());
            scene.trace.await("exception PortUnreachableException", 2);
            scene.state();
        }),
        CONNECTS_TO_NOBODY_AND_DOES_NOT_READ(scene -> {
            scene.options = bootstrap -> bootstrap.option(ChannelOption.AUTO_READ, false);
            scene.bind();
            scene.connectTo(scene.nobody());
            scene.write(DatagramScene.bytes(1));
            scene.channel.eventLoop().submit(() -> {}).sync();
            scene.trace.add("it reads");
            scene.channel.read();
            scene.trace.await("exception PortUnreachableException");
        });

        private final Traces.Steps<DatagramScene> steps;

        Scenario(Traces.Steps<DatagramScene> steps) {
            this.steps = steps;
        }
    }

    @SuppressWarnings("deprecation")
    private static ChannelOption<Boolean> activeOnRegistration() {
        return ChannelOption.DATAGRAM_CHANNEL_ACTIVE_ON_REGISTRATION;
    }

    /** Closes the channel behind a flush of many datagrams, and traces how many of them were sent. */
    private static void closeBehindMany(DatagramScene scene, IntUnaryOperator size) throws Exception {
        scene.options = DatagramTracesTest::neverUnwritable;
        scene.bind();
        AtomicInteger sent = new AtomicInteger();
        scene.channel
                .eventLoop()
                .submit(() -> {
                    for (int count = 0; count < MANY; count++) {
                        scene.channel
                                .write(new DatagramPacket(
                                        DatagramScene.bytes(size.applyAsInt(count)), scene.peerAddress()))
                                .addListener(written -> {
                                    if (written.isSuccess()) {
                                        sent.incrementAndGet();
                                    }
                                });
                    }
                    scene.channel.flush();
                    scene.trace.of("close", scene.channel.close());
                })
                .sync();
        scene.channel.closeFuture().sync();
        scene.trace.outcome("sent " + sent);
    }

    /** Sends may leave a little later than elsewhere, and take their part of the queue until then. */
    private static Bootstrap neverUnwritable(Bootstrap bootstrap) {
        return bootstrap.option(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(1 << 20, 2 << 20));
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> Stream.of(
                        Arguments.of(scenario, SocketProtocolFamily.INET), Arguments.of(scenario, null)));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(
            Map.of(
                    "RECEIVES_A_LONG_ONE",
                    List.of(
                            "active",
                            "datagram of 3000 from the peer to 127.0.0.1:port",
                            "read complete",
                            "inactive",
                            "unregistered",
                            "bind: done"),
                    "SENDS_NOTHING_AT_ALL",
                    List.of(
                            "active",
                            "inactive",
                            "unregistered",
                            "bind: done",
                            "connect: done",
                            "write: done",
                            "references 0",
                            "write: done",
                            "references 0",
                            "write: done",
                            "references 0",
                            "the peer has 0 from 127.0.0.1:port")),
            Set.of(
                    "ADDRESS_IS_UNRESOLVED",
                    "ADDRESS_IS_OF_A_UNIX_SOCKET",
                    "CONNECTS_TO_A_UNIX_SOCKET",
                    "CONNECTS_TO_ALL_WITHOUT_THE_OPTION",
                    "HANDLER_CLOSES_AS_IT_READS",
                    "SENDS_TO_NO_ADDRESS",
                    "SENDS_TO_A_UNIX_SOCKET",
                    "DISCONNECTS",
                    "DISCONNECTS_WITHOUT_A_PEER",
                    "DISCONNECTS_WHEN_CLOSED",
                    "CONNECTS_TO_NOBODY_AND_DOES_NOT_READ"));

    /** For sockets of IPv4, and of IPv6 with IPv4. */
    @ParameterizedTest
    @MethodSource("scenarios")
    void aHandlerIsToldTheSameAsOnNettysOwnTransport(Scenario scenario, SocketProtocolFamily family) throws Exception {
        TRACES.compare(scenario.name(), stock -> new DatagramScene(stock, family), scenario.steps);
    }
}
