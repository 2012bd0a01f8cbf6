package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http2.DefaultHttp2DataFrame;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.DefaultHttp2HeadersFrame;
import io.netty.handler.codec.http2.Http2DataFrame;
import io.netty.handler.codec.http2.Http2FrameCodecBuilder;
import io.netty.handler.codec.http2.Http2HeadersFrame;
import io.netty.handler.codec.http2.Http2MultiplexHandler;
import io.netty.util.ReferenceCountUtil;
import java.nio.charset.StandardCharsets;

/** Answers every request of HTTP/2 with {@code hello}, once its body has been read. */
@ChannelHandler.Sharable
final class Http2Hello extends ChannelInboundHandlerAdapter {
    private static final ByteBuf HELLO =
            Unpooled.unreleasableBuffer(Unpooled.copiedBuffer("hello", StandardCharsets.US_ASCII).asReadOnly());

    private static final Http2Hello STREAM = new Http2Hello();

    private Http2Hello() {}

    /** Makes a connection one of HTTP/2, whose client knows beforehand that it is. */
    static void add(ChannelPipeline pipeline) {
        pipeline.addLast(
                Http2FrameCodecBuilder.forServer().build(),
                new Http2MultiplexHandler(new ChannelInitializer<Channel>() {
                    @Override
                    protected void initChannel(Channel stream) {
                        stream.pipeline().addLast(STREAM);
                    }
                }),
                new ChannelInboundHandlerAdapter() {
                    @Override
                    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
                        // The codec has told the client what it did wrong, and ends the connection.
                    }
                });
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        boolean end = message instanceof Http2HeadersFrame headers && headers.isEndStream()
                || message instanceof Http2DataFrame data && data.isEndStream();
        ReferenceCountUtil.release(message);
        if (end) {
            context.write(new DefaultHttp2HeadersFrame(
                    new DefaultHttp2Headers().status(HttpResponseStatus.OK.codeAsText())));
            context.writeAndFlush(new DefaultHttp2DataFrame(HELLO.duplicate(), true));
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // The codec has told the client what was wrong with the stream.
        context.close();
    }
}
