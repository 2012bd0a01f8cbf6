package io.quoit.deployed;

import io.netty.buffer.ByteBufUtil;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpObject;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import java.util.concurrent.atomic.AtomicBoolean;

/** Greets, once a request has come whole. While the server drains, each response is the last one of its connection. */
class Hello extends SimpleChannelInboundHandler<HttpObject> {
    /** The event that tells a connection of the drain. */
    static final Object DRAIN = new Object();

    /** Whether the server drains. */
    protected final AtomicBoolean draining;

    /** Of the request that is under way; null between two. */
    private HttpRequest request;

    Hello(AtomicBoolean draining) {
        this.draining = draining;
    }

    /** What is answered at a path; null if there is nothing. */
    protected Answer answer(String path) {
        return path.equals("/hello") ? new Answer(HttpResponseStatus.OK, "Hello, World!") : null;
    }

    /** A response in short. */
    record Answer(HttpResponseStatus status, String text) {}

    @Override
    protected void channelRead0(ChannelHandlerContext context, HttpObject message) {
        if (message instanceof HttpRequest begun) {
            request = begun;
        }
        if (!(message instanceof LastHttpContent)) {
            return;
        }
        Answer answer = answer(request.uri());
        if (answer == null || message.decoderResult().isFailure()) {
            answer = new Answer(HttpResponseStatus.NOT_FOUND, "there is nothing at this path");
        }
        FullHttpResponse response = new DefaultFullHttpResponse(
                HttpVersion.HTTP_1_1, answer.status(), ByteBufUtil.writeUtf8(context.alloc(), answer.text()));
        response.headers().set(HttpHeaderNames.CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
        HttpUtil.setContentLength(response, response.content().readableBytes());
        boolean stays = HttpUtil.isKeepAlive(request) && !draining.get();
        HttpUtil.setKeepAlive(response, stays);
        request = null;
        ChannelFuture written = context.writeAndFlush(response);
        if (!stays) {
            written.addListener(ChannelFutureListener.CLOSE);
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        if (event == DRAIN && request == null) {
            context.close();
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // Its client is gone, or speaks something else.
        context.close();
    }
}
