package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.testsuite.transport.AbstractSingleThreadEventLoopTest;
import java.util.concurrent.Executor;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Test;

/** Netty's own tests of event loops. */
class NettyEventLoopSuiteTest extends AbstractSingleThreadEventLoopTest {
    @Override
    protected boolean supportsChannelIteration() {
        return false;
    }

    @Override
    protected EventLoopGroup newEventLoopGroup() {
        return UnderTest.group(0);
    }

    @Override
    protected EventLoopGroup newAutoScalingEventLoopGroup() {
        return new MultiThreadIoEventLoopGroup(
                SCALING_MAX_THREADS,
                (Executor) null,
                AUTO_SCALING_CHOOSER_FACTORY,
                UnderTest.factory());
    }

    /** Left out: a loop belongs to the thread that it began on, so event loops cannot be suspended and resumed. */
    @Override
    @Disabled("isChangingThreadSupported is false")
    @Test
    public void testAutoScalingEventLoopGroupCanScaleDownAndBeUsed() {}

    /** Left out, as the one above. */
    @Override
    @Disabled("isChangingThreadSupported is false")
    @Test
    public void testSubmittingTaskWakesUpSuspendedExecutor() {}

    @Override
    protected Channel newChannel() {
        return UnderTest.stream();
    }

    @Override
    protected Class<? extends ServerChannel> serverChannelClass() {
        return UnderTest.serverClass();
    }
}
