package io.quoit.peers;

import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.uring.IoUringBufferRingConfig;
import io.netty.channel.uring.IoUringChannelOption;
import io.netty.channel.uring.IoUringFixedBufferRingAllocator;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringIoHandlerConfig;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.channel.uring.IoUringSocketChannel;
import io.quoit.netty.QuoitEngine;
import io.quoit.netty.QuoitIoHandler;
import io.quoit.netty.QuoitIoHandlerConfig;
import io.quoit.netty.QuoitServerSocketChannel;
import io.quoit.netty.QuoitSocketChannel;

/** The transports that can be compared, by the word after {@code --engine}. */
enum Transport {
    NIO("nio", NioServerSocketChannel.class, NioSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            return NioIoHandler.newFactory();
        }
    },
    EPOLL("epoll", EpollServerSocketChannel.class, EpollSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            return EpollIoHandler.newFactory();
        }
    },
    /** As frameworks take it: with nothing configured. */
    URING("uring", IoUringServerSocketChannel.class, IoUringSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            return IoUringIoHandler.newFactory();
        }
    },
    /** With a buffer ring, so that receives are multishot. */
    URING_RINGS("uring-rings", IoUringServerSocketChannel.class, IoUringSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            IoUringBufferRingConfig ring = IoUringBufferRingConfig.builder()
                    .bufferGroupId(BUFFER_GROUP)
                    .bufferRingSize((short) 256)
                    .batchSize(64)
                    .allocator(new IoUringFixedBufferRingAllocator(RING_BUFFER_BYTES))
                    .build();
            return IoUringIoHandler.newFactory(new IoUringIoHandlerConfig().setBufferRingConfig(ring));
        }
    },
    QUOIT_URING("quoit-uring", QuoitServerSocketChannel.class, QuoitSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            return coalescing(0);
        }

        @Override
        IoHandlerFactory coalescing(long nanos) {
            return quoit(QuoitEngine.URING, nanos);
        }
    },
    QUOIT_EPOLL("quoit-epoll", QuoitServerSocketChannel.class, QuoitSocketChannel.class) {
        @Override
        IoHandlerFactory loops() {
            return coalescing(0);
        }

        @Override
        IoHandlerFactory coalescing(long nanos) {
            return quoit(QuoitEngine.EPOLL, nanos);
        }
    };

    static final short BUFFER_GROUP = 1;
    private static final int RING_BUFFER_BYTES = 16 << 10;

    final String word;
    final Class<? extends ServerChannel> serverChannel;
    final Class<? extends Channel> channel;

    Transport(String word, Class<? extends ServerChannel> serverChannel, Class<? extends Channel> channel) {
        this.word = word;
        this.serverChannel = serverChannel;
        this.channel = channel;
    }

    abstract IoHandlerFactory loops();

    /**
     * Loops that sleep on for more than the first event.
     *
     * @param nanos for how long; 0: not
     * @throws IllegalArgumentException the transport has nothing like it, or not for so long
     */
    IoHandlerFactory coalescing(long nanos) {
        if (nanos != 0) {
            throw new IllegalArgumentException("quoit-uring and quoit-epoll coalesce, " + word + " does not");
        }
        return loops();
    }

    private static IoHandlerFactory quoit(QuoitEngine engine, long coalesceNanos) {
        return QuoitIoHandler.newFactory(
                QuoitIoHandlerConfig.defaults().withEngine(engine).withCoalesceTime(coalesceNanos));
    }

    /** Whether its loops tell what they do. */
    boolean hasFigures() {
        return this == QUOIT_URING || this == QUOIT_EPOLL;
    }

    /** Sets what a connection that no loop has yet needs beside. */
    void prepare(ChannelConfig config) {
        if (this == URING_RINGS) {
            config.setOption(IoUringChannelOption.IO_URING_BUFFER_GROUP_ID, BUFFER_GROUP);
        }
    }

    /**
     * The transport that a word names, which may be the name of one of the lab's servers: begin with {@code netty-}, and end
     * with a comma and what sets it apart from others on that transport. Null if there is none.
     */
    static Transport of(String name) {
        int comma = name.indexOf(',');
        String word = comma < 0 ? name : name.substring(0, comma);
        for (Transport transport : values()) {
            if (transport.word.equals(word) || word.equals("netty-" + transport.word)) {
                return transport;
            }
        }
        return null;
    }
}
