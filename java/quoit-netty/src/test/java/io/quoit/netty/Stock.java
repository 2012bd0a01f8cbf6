package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.SocketProtocolFamily;
import io.netty.channel.socket.nio.NioDatagramChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.uring.IoUringDatagramChannel;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.channel.uring.IoUringSocketChannel;

/** Netty's own transports, which the suites run on for a base line. */
enum Stock {
    EPOLL(EpollServerSocketChannel.class, EpollSocketChannel.class) {
        @Override
        IoHandlerFactory factory() {
            return EpollIoHandler.newFactory();
        }

        @Override
        Channel stream() {
            return new EpollSocketChannel();
        }

        @Override
        DatagramChannel datagram(SocketProtocolFamily family) {
            return family == null ? new EpollDatagramChannel() : new EpollDatagramChannel(family);
        }
    },
    NIO(NioServerSocketChannel.class, NioSocketChannel.class) {
        @Override
        IoHandlerFactory factory() {
            return NioIoHandler.newFactory();
        }

        @Override
        Channel stream() {
            return new NioSocketChannel();
        }

        @Override
        DatagramChannel datagram(SocketProtocolFamily family) {
            return new NioDatagramChannel(family);
        }
    },
    URING(IoUringServerSocketChannel.class, IoUringSocketChannel.class) {
        @Override
        IoHandlerFactory factory() {
            return IoUringIoHandler.newFactory();
        }

        @Override
        Channel stream() {
            return new IoUringSocketChannel();
        }

        @Override
        DatagramChannel datagram(SocketProtocolFamily family) {
            return family == null ? new IoUringDatagramChannel() : new IoUringDatagramChannel(family);
        }
    };

    final Class<? extends ServerChannel> serverClass;
    final Class<? extends Channel> streamClass;

    Stock(Class<? extends ServerChannel> serverClass, Class<? extends Channel> streamClass) {
        this.serverClass = serverClass;
        this.streamClass = streamClass;
    }

    abstract IoHandlerFactory factory();

    abstract Channel stream();

    abstract DatagramChannel datagram(SocketProtocolFamily family);
}
