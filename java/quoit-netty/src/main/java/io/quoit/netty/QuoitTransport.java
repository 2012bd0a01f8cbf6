package io.quoit.netty;

import io.netty.channel.IoHandlerFactory;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;

/**
 * A loop factory and the channel classes that belong to it.
 *
 * @param name {@code quoit} or {@code nio}
 * @param ioHandlerFactory for {@code new MultiThreadIoEventLoopGroup(factory)}
 * @param socketChannel for {@code Bootstrap.channel}
 * @param serverSocketChannel for {@code ServerBootstrap.channel}
 * @param datagramChannel for {@code Bootstrap.channel}
 */
public record QuoitTransport(
        String name,
        IoHandlerFactory ioHandlerFactory,
        Class<? extends SocketChannel> socketChannel,
        Class<? extends ServerSocketChannel> serverSocketChannel,
        Class<? extends DatagramChannel> datagramChannel) {}
