package io.quoit.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;

/** Whose transport a test is run on: Netty's first, which is the measure, then this one, with the engine of the build. */
enum Side {
    STOCK,
    OURS;

    /** A group of one loop. */
    EventLoopGroup group(QuoitIoHandlerConfig config) {
        return new MultiThreadIoEventLoopGroup(
                1, this == OURS ? QuoitIoHandler.newFactory(config) : Stock.EPOLL.factory());
    }

    Class<? extends ServerChannel> serverClass() {
        return this == OURS ? QuoitServerSocketChannel.class : Stock.EPOLL.serverClass;
    }

    Class<? extends Channel> streamClass() {
        return this == OURS ? QuoitSocketChannel.class : Stock.EPOLL.streamClass;
    }

    ServerBootstrap bootstrap(EventLoopGroup group) {
        return new ServerBootstrap().group(group).channel(serverClass());
    }
}
