package io.quoit.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

/**
 * A server on a socket that it inherits, which ends so that the process that takes over from it loses no request: start that one
 * first, then send this one SIGTERM. {@link RestartTest} runs it, and {@code make restarts} does as a program.
 */
final class RestartExample {
    private static final int KEEP_IDLE_SECONDS = 5;

    private final ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
    private final QuoitServerSocketChannel server;
    private volatile boolean ending;

    RestartExample(EventLoopGroup group, int descriptor) {
        server = (QuoitServerSocketChannel) new ServerBootstrap()
                .group(group)
                .channelFactory(() -> new QuoitServerSocketChannel(descriptor))
                .handler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public void channelRead(ChannelHandlerContext context, Object accepted) {
                        // Here, as its own event loop may get to it when the server has ended.
                        connections.add((Channel) accepted);
                        context.fireChannelRead(accepted);
                    }
                })
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new HttpServerCodec(), new Hello());
                    }
                })
                // It listens already: there is nothing to bind.
                .register()
                .syncUninterruptibly()
                .channel();
    }

    private final class Hello extends SimpleChannelInboundHandler<Object> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, Object message) {
            if (!(message instanceof HttpRequest request)) {
                return;
            }
            FullHttpResponse response = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1,
                    HttpResponseStatus.OK,
                    Unpooled.copiedBuffer("Hello, World!", StandardCharsets.US_ASCII));
            HttpUtil.setContentLength(response, response.content().readableBytes());
            if (ending || !HttpUtil.isKeepAlive(request)) {
                response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
                context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE);
            } else {
                context.writeAndFlush(response);
            }
        }
    }

    /** Ends, with the loops still running: whoever asks something within the time is answered, and told that this is the last. */
    void end(long keepIdle, TimeUnit unit) {
        ending = true;
        // The pipeline gets those that are accepted already; closing at once would reset them.
        server.stopAccepting().syncUninterruptibly();
        connections.newCloseFuture().awaitUninterruptibly(keepIdle, unit);
        server.close().syncUninterruptibly();
        connections.close().awaitUninterruptibly();
    }

    public static void main(String[] arguments) {
        QuoitEngine engine = QuoitEngine.valueOf(arguments[0].toUpperCase(Locale.ROOT));
        QuoitIoHandlerConfig config = QuoitIoHandlerConfig.defaults().withEngine(engine);
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, QuoitIoHandler.newFactory(config));
        RestartExample example = new RestartExample(group, inherited());
        System.out.println("listening on " + example.server.localAddress());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            example.end(KEEP_IDLE_SECONDS, TimeUnit.SECONDS);
            group.shutdownGracefully(0, 5, TimeUnit.SECONDS).syncUninterruptibly();
        }));
    }

    /** The first socket that was handed to this process (sd_listen_fds(3)). */
    private static int inherited() {
        String process = String.valueOf(ProcessHandle.current().pid());
        if (!process.equals(System.getenv("LISTEN_PID")) || "0".equals(System.getenv("LISTEN_FDS"))) {
            throw new IllegalStateException("no socket was inherited (LISTEN_FDS, LISTEN_PID)");
        }
        return 3;
    }
}
