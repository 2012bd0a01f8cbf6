package io.quoit.netty;

import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.unix.Errors;
import io.netty.util.ReferenceCountUtil;
import io.netty.buffer.ByteBuf;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** What happens to a channel, in order, as far as its user can see it; the same on every transport. */
final class Trace {
    private final List<String> steps = new ArrayList<>();
    private boolean lastIsData;
    private int dataLength;

    synchronized void add(String step) {
        lastIsData = false;
        steps.add(step);
        notifyAll();
    }

    /** Received bytes: in how many pieces they come differs from run to run. */
    private synchronized void data(int length) {
        if (lastIsData) {
            dataLength += length;
            steps.set(steps.size() - 1, "data " + dataLength);
        } else {
            dataLength = length;
            steps.add("data " + length);
            lastIsData = true;
        }
        notifyAll();
    }

    synchronized List<String> steps() {
        return List.copyOf(steps);
    }

    /** Waits until this has happened. */
    synchronized void await(String step) throws InterruptedException {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (!steps.contains(step)) {
            long left = TimeUnit.NANOSECONDS.toMillis(giveUp - System.nanoTime());
            if (left <= 0) {
                throw new AssertionError("no \"" + step + "\" after " + steps);
            }
            wait(left);
        }
    }

    /** Tells what becomes of a future. */
    ChannelFuture of(String what, ChannelFuture future) {
        future.addListener(done -> add(what + ": " + (done.isSuccess() ? "done" : kind(done.cause()))));
        return future;
    }

    /** What code can tell an error by: its type, and what the kernel said. */
    static String kind(Throwable cause) {
        String type = cause instanceof ClosedChannelException && cause.getClass() != ClosedChannelException.class
                ? cause.getClass().getSuperclass().getSimpleName()
                : cause instanceof Errors.NativeIoException ? "IOException" : cause.getClass().getSimpleName();
        String message = String.valueOf(cause.getMessage());
        for (String said : List.of(
                "Connection reset", "Broken pipe", "Connection refused", "Address already in use", "Cannot assign",
                "No such file", "connection timed out")) {
            if (message.contains(said)) {
                return type + " (" + said + ")";
            }
        }
        return type;
    }

    /** Tells what it is told, and hands nothing on. */
    ChannelHandler recorder() {
        return new Recorder();
    }

    /** As {@link #recorder}; some do something beside. */
    class Recorder extends ChannelInboundHandlerAdapter {
        @Override
        public void channelActive(ChannelHandlerContext context) throws Exception {
            add("active");
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
            int length = ((ByteBuf) message).readableBytes();
            ReferenceCountUtil.release(message);
            data(length);
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext context, Object event) {
            add("event " + event.getClass().getSimpleName());
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            add("exception " + kind(cause));
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) throws Exception {
            add("inactive");
        }

        @Override
        public void channelUnregistered(ChannelHandlerContext context) {
            add("unregistered");
        }
    }
}
