package io.quoit.doors;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitServerSocketChannel;
import io.quoit.netty.QuoitSocketChannel;

/** Netty's epoll transport, which all software here is run on first, and Quoit's with each engine. */
public enum Transport {
    STOCK(EpollServerSocketChannel.class, EpollSocketChannel.class),
    URING(QuoitServerSocketChannel.class, QuoitSocketChannel.class),
    EPOLL(QuoitServerSocketChannel.class, QuoitSocketChannel.class);

    public final Class<? extends ServerChannel> server;
    public final Class<? extends Channel> client;
    private EventLoopGroup group;

    Transport(Class<? extends ServerChannel> server, Class<? extends Channel> client) {
        this.server = server;
        this.client = client;
    }

    QuoitIoHandlerConfig config() {
        return QuoitIoHandlerConfig.defaults().withEngine(QuoitEngine.valueOf(name()));
    }

    /** Two loops, for all tests: their servers are not closed before the group otherwise. */
    public synchronized EventLoopGroup group() {
        if (group == null) {
            IoHandlerFactory factory =
                    this == STOCK ? EpollIoHandler.newFactory() : QuoitIoHandler.newFactory(config());
            group = new MultiThreadIoEventLoopGroup(2, new DefaultThreadFactory("doors", true), factory);
        }
        return group;
    }
}
