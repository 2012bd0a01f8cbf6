package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import java.util.concurrent.TimeUnit;

/** A process that connects, writes and ends: {@link ExitTracesTest} starts it. */
final class Exiting {
    private Exiting() {}

    /** Takes Netty's transport or our engine, the port, how much to write, and whether it ends in order. */
    public static void main(String[] arguments) throws Exception {
        String engine = arguments[0];
        Stock stock = engine.startsWith("ours") ? null : Stock.valueOf(engine);
        if (stock == null) {
            System.setProperty("quoit.test.engine", engine.substring("ours ".length()));
        }
        int port = Integer.parseInt(arguments[1]);
        byte[] bytes = Peers.bytes(Integer.parseInt(arguments[2]));
        EventLoopGroup group = Scene.group(stock);
        Channel channel = new Bootstrap()
                .group(group)
                .channel(stock == null ? QuoitSocketChannel.class : stock.streamClass)
                .handler(new ChannelInboundHandlerAdapter())
                .connect("127.0.0.1", port)
                .sync()
                .channel();
        if (arguments[3].equals("at once")) {
            channel.eventLoop().execute(() -> channel.writeAndFlush(Peers.direct(bytes))
                    .addListener(written -> Runtime.getRuntime().halt(written.isSuccess() ? 0 : 1)));
            channel.closeFuture().sync();
            throw new AssertionError("the connection has ended first");
        }
        channel.writeAndFlush(Peers.direct(bytes)).sync();
        channel.close().sync();
        group.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        Runtime.getRuntime().halt(0);
    }
}
