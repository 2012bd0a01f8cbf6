package io.quoit.doors;

import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitServerSocketChannel;
import io.quoit.netty.QuoitSocketChannel;

/** Netty's epoll transport, which all software here is run on first, and Quoit's with each engine. */
enum Transport {
    STOCK(EpollServerSocketChannel.class, EpollSocketChannel.class),
    URING(QuoitServerSocketChannel.class, QuoitSocketChannel.class),
    EPOLL(QuoitServerSocketChannel.class, QuoitSocketChannel.class);

    final Class<? extends ServerChannel> server;
    final Class<? extends Channel> client;

    Transport(Class<? extends ServerChannel> server, Class<? extends Channel> client) {
        this.server = server;
        this.client = client;
    }

    QuoitIoHandlerConfig config() {
        return QuoitIoHandlerConfig.defaults().withEngine(QuoitEngine.valueOf(name()));
    }

    EventLoopGroup group(int threads) {
        IoHandlerFactory factory =
                this == STOCK ? EpollIoHandler.newFactory() : QuoitIoHandler.newFactory(config());
        return new MultiThreadIoEventLoopGroup(threads, factory);
    }
}
