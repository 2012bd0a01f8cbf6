package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import io.netty.bootstrap.Bootstrap;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

/** Channels and threads that do not fit: each refusal says once what to do. */
class RefusalsTest {
    private final List<String> logged = new CopyOnWriteArrayList<>();
    private final Logger root = (Logger) LoggerFactory.getLogger(org.slf4j.Logger.ROOT_LOGGER_NAME);

    private final AppenderBase<ILoggingEvent> log = new AppenderBase<>() {
        @Override
        protected void append(ILoggingEvent event) {
            String thrown = event.getThrowableProxy() == null ? "" : event.getThrowableProxy().getMessage();
            logged.add(event.getFormattedMessage() + " " + thrown);
        }
    };

    @BeforeEach
    void listen() {
        log.start();
        root.addAppender(log);
    }

    @AfterEach
    void end() {
        root.detachAppender(log);
    }

    private void assertLoggedOnce(String words) {
        assertEquals(1, logged.stream().filter(line -> line.contains(words)).count(), words + " in " + logged);
    }

    @Test
    void aLoopSaysOnceWhichChannelsItServes() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            for (int time = 0; time < 2; time++) {
                ChannelFuture foreign = new Bootstrap()
                        .group(group)
                        .channel(NioSocketChannel.class)
                        .handler(new ChannelInboundHandlerAdapter())
                        .register()
                        .await();
                assertInstanceOf(IllegalStateException.class, foreign.cause());
            }
            assertLoggedOnce("give the bootstrap a channel class of io.quoit.netty");
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void aChannelOnAnotherTransportsLoopSaysWhatItNeeds() throws Exception {
        EventLoopGroup nio = new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
        try {
            QuoitSocketChannel channel = new QuoitSocketChannel();
            Throwable cause = nio.register(channel).await().cause();
            assertInstanceOf(IllegalStateException.class, cause);
            assertTrue(cause.getMessage().contains("QuoitIoHandler.newFactory()"), cause.getMessage());
            assertFalse(channel.isOpen());
        } finally {
            nio.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void virtualThreadsAreRefusedWithAMessage() throws Exception {
        EventLoopGroup virtual = new MultiThreadIoEventLoopGroup(
                1, VirtualThreads.factory(), QuoitIoHandler.newFactory(UnderTest.config()));
        ChannelFuture register = virtual.register(new QuoitSocketChannel());
        assertTrue(virtual.terminationFuture().await(Peers.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertFalse(register.isSuccess());
        assertLoggedOnce("give the event loop group a thread factory of platform threads");
    }
}
