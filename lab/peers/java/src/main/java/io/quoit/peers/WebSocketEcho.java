package io.quoit.peers;

import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolConfig;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolHandler;
import io.netty.handler.codec.http.websocketx.extensions.compression.WebSocketServerCompressionHandler;

/**
 * Sends back the frames of messages, as they come. Netty's own handlers answer pings and the end, and compress messages with a
 * client that asks for it.
 */
@ChannelHandler.Sharable
final class WebSocketEcho extends ChannelInboundHandlerAdapter {
    private static final String PATH = "/";
    private static final int LARGEST_REQUEST = 64 << 10;
    /** Above the largest frame of the conformance tests, which have 16 MiB. */
    private static final int LARGEST_FRAME = 32 << 20;

    private static final WebSocketServerProtocolConfig CONFIG = WebSocketServerProtocolConfig.newBuilder()
            .websocketPath(PATH)
            .allowExtensions(true)
            .maxFramePayloadLength(LARGEST_FRAME)
            .build();

    private static final WebSocketEcho ECHO = new WebSocketEcho();

    private WebSocketEcho() {}

    /** Makes a connection one of WebSocket. */
    static void add(ChannelPipeline pipeline) {
        pipeline.addLast(
                new HttpServerCodec(),
                new HttpObjectAggregator(LARGEST_REQUEST),
                new WebSocketServerCompressionHandler(LARGEST_FRAME),
                new WebSocketServerProtocolHandler(CONFIG),
                ECHO);
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object frame) {
        context.write(frame, context.voidPromise());
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        // A peer that does not read is not read from.
        context.channel().config().setAutoRead(context.channel().isWritable());
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
