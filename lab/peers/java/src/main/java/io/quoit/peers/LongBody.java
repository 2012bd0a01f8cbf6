package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultLastHttpContent;
import io.netty.util.ReferenceCountUtil;
import java.util.ArrayDeque;
import java.util.Queue;

/**
 * Writes the body of a response as fast as its peer reads, and no faster: until the channel is no longer writable, and on
 * when it is again. The byte at position p is p mod 251, as that of {@code quoit serve}.
 *
 * <p>In the pipeline for as long as there is something left. What is received meanwhile waits for the end.
 */
final class LongBody extends ChannelInboundHandlerAdapter {
    private static final int PERIOD = 251;
    /** Whole periods, so that all pieces are alike. */
    private static final int PIECE_BYTES = 128 * PERIOD;

    private static final ByteBuf PIECE = Unpooled.unreleasableBuffer(piece().asReadOnly());

    private final Queue<Object> waiting = new ArrayDeque<>();
    private long left;
    private boolean writing;
    private boolean ended;

    /** Of so many bytes, more than zero. */
    LongBody(long length) {
        left = length;
    }

    private static ByteBuf piece() {
        ByteBuf bytes = Unpooled.directBuffer(PIECE_BYTES);
        for (int position = 0; position < PIECE_BYTES; position++) {
            bytes.writeByte(position % PERIOD);
        }
        return bytes;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        context.channel().config().setAutoRead(false);
        write(context);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (ended) {
            context.fireChannelWritabilityChanged();
        } else {
            write(context);
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        waiting.add(message);
    }

    private void write(ChannelHandlerContext context) {
        if (writing) {
            // Told of the high water mark from within a write: the encoder is not done with it.
            return;
        }
        writing = true;
        while (left > 0 && context.channel().isWritable()) {
            int length = (int) Math.min(left, PIECE_BYTES);
            left -= length;
            ByteBuf bytes = PIECE.slice(0, length);
            context.write(
                    left > 0 ? new DefaultHttpContent(bytes) : new DefaultLastHttpContent(bytes),
                    context.voidPromise());
        }
        writing = false;
        // May come back here, as what leaves makes the channel writable.
        context.flush();
        if (left == 0 && !ended) {
            ended = true;
            end(context);
        }
    }

    private void end(ChannelHandlerContext context) {
        context.channel().config().setAutoRead(context.channel().isWritable());
        // One of these may be answered with a long body again, for which the rest waits behind this one: a handler that is
        // removed already would not know of it.
        Object message;
        while ((message = waiting.poll()) != null) {
            context.fireChannelRead(message);
        }
        context.fireChannelReadComplete();
        context.pipeline().remove(this);
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        // There are some only where the channel was closed.
        waiting.forEach(ReferenceCountUtil::release);
    }
}
