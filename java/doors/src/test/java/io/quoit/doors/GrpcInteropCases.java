package io.quoit.doors;

import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.ServerBuilder;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.testing.integration.AbstractInteropTest;
import io.netty.channel.EventLoopGroup;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.junit.After;

/** The interoperability cases of grpc-java, server and client on the same transport. */
abstract class GrpcInteropCases extends AbstractInteropTest {
    private final Transport transport;
    private final EventLoopGroup group;

    GrpcInteropCases(Transport transport) {
        this.transport = transport;
        group = transport.group(2);
    }

    @Override
    protected ServerBuilder<?> getServerBuilder() {
        NettyServerBuilder builder = NettyServerBuilder.forAddress(
                        new InetSocketAddress("127.0.0.1", 0), InsecureServerCredentials.create())
                .flowControlWindow(AbstractInteropTest.TEST_FLOW_CONTROL_WINDOW)
                .maxInboundMessageSize(AbstractInteropTest.MAX_MESSAGE_SIZE)
                .channelType(transport.server)
                .bossEventLoopGroup(group)
                .workerEventLoopGroup(group);
        builder.addStreamTracerFactory(createCustomCensusTracerFactory());
        return builder;
    }

    @Override
    protected ManagedChannelBuilder<?> createChannelBuilder() {
        NettyChannelBuilder builder = NettyChannelBuilder.forAddress(getListenAddress())
                .flowControlWindow(AbstractInteropTest.TEST_FLOW_CONTROL_WINDOW)
                .maxInboundMessageSize(AbstractInteropTest.MAX_MESSAGE_SIZE)
                .channelType(transport.client)
                .eventLoopGroup(group)
                .usePlaintext();
        builder.intercept(createCensusStatsClientInterceptor());
        return builder;
    }

    @After
    public void endGroup() throws InterruptedException {
        group.shutdownGracefully(0, 5, TimeUnit.SECONDS).sync();
    }
}
