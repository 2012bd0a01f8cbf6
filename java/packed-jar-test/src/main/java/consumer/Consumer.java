package consumer;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.quoit.netty.Quoit;
import io.quoit.netty.QuoitTransport;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** Echoes a word over the transport that there is, and prints its name, the word, why not Quoit, and how Java calls that. */
public final class Consumer {
    private Consumer() {}

    /**
     * Sends a word over the transport, and says which one that is.
     *
     * @param arguments none
     * @throws Exception if the word does not come back
     */
    public static void main(String[] arguments) throws Exception {
        QuoitTransport transport = Quoit.transport();
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, transport.ioHandlerFactory());
        BlockingQueue<String> answers = new ArrayBlockingQueue<>(1);
        Channel server = new ServerBootstrap()
                .group(group)
                .channel(transport.serverSocketChannel())
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new ChannelInboundHandlerAdapter() {
                            @Override
                            public void channelRead(ChannelHandlerContext context, Object message) {
                                context.writeAndFlush(message);
                            }
                        });
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        Channel client = new Bootstrap()
                .group(group)
                .channel(transport.socketChannel())
                .handler(new ChannelInboundHandlerAdapter() {
                    @Override
                    public void channelRead(ChannelHandlerContext context, Object message) {
                        ByteBuf bytes = (ByteBuf) message;
                        answers.add(bytes.toString(StandardCharsets.US_ASCII));
                        bytes.release();
                    }
                })
                .connect(server.localAddress())
                .sync()
                .channel();
        client.writeAndFlush(Unpooled.copiedBuffer("word", StandardCharsets.US_ASCII)).sync();
        String answer = answers.poll(20, TimeUnit.SECONDS);
        Throwable cause = Quoit.unavailabilityCause();
        System.out.println("transport=" + transport.name() + " answer=" + answer + " cause="
                + (cause == null ? "none" : cause.getMessage()) + " access=" + Quoit.doctor().access()
                + " version=" + Quoit.doctor().version());
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }
}
