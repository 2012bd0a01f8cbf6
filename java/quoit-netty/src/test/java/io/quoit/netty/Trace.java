package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.unix.Errors;
import io.netty.util.ReferenceCountUtil;
import java.net.BindException;
import java.net.PortUnreachableException;
import java.net.SocketException;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * What happens to a channel, as far as its user can see it: what its handler is told, in order, and beside that what became of
 * each thing that was asked for.
 */
final class Trace {
    private final List<String> steps = new ArrayList<>();
    private final List<String> outcomes = new ArrayList<>();
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

    /** All of it. */
    synchronized List<String> steps() {
        List<String> all = new ArrayList<>(steps);
        all.addAll(outcomes);
        return all;
    }

    synchronized void outcome(String outcome) {
        outcomes.add(outcome);
    }

    /** Waits until this has happened. */
    void await(String step) throws InterruptedException {
        await(step, 1);
    }

    /** Waits until this has happened so often. */
    synchronized void await(String step, int times) throws InterruptedException {
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(Peers.PATIENCE_SECONDS);
        while (Collections.frequency(steps, step) < times) {
            long left = TimeUnit.NANOSECONDS.toMillis(giveUp - System.nanoTime());
            if (left <= 0) {
                throw new AssertionError("no \"" + step + "\" after " + steps);
            }
            wait(left);
        }
    }

    /** Tells what becomes of a future, in the order in which futures are asked about. */
    synchronized ChannelFuture of(String what, ChannelFuture future) {
        int place = outcomes.size();
        outcomes.add(what + ": nothing");
        future.addListener(done -> {
            synchronized (this) {
                outcomes.set(place, what + ": " + (done.isSuccess() ? "done" : kind(done.cause())));
            }
        });
        return future;
    }

    /**
     * What code can tell an error by: its type, and what the kernel said. Netty's native transports have a type of their own
     * for the kernel's errors, where NIO has the JDK's.
     */
    static String kind(Throwable cause) {
        String type = cause.getClass().getSimpleName();
        if (cause instanceof ClosedChannelException && cause.getClass() != ClosedChannelException.class) {
            type = cause.getClass().getSuperclass().getSimpleName();
        } else if (cause instanceof Errors.NativeIoException
                || cause.getClass() == SocketException.class
                || cause instanceof BindException) {
            type = "IOException";
        }
        if (cause instanceof PortUnreachableException) {
            // Not each transport repeats in words what the type says.
            return type;
        }
        String message = String.valueOf(cause.getMessage());
        for (String said : List.of(
                "Connection reset", "Broken pipe", "Connection refused", "Address already in use", "Cannot assign",
                "connection timed out", "Message too long", "Invalid argument", "Permission denied", "Bad file descriptor",
                "Too many open files")) {
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

    /** As {@link Recorder}, and tells where reads end and when it may write. */
    class Closely extends Recorder {
        @Override
        public void channelReadComplete(ChannelHandlerContext context) throws Exception {
            add("read complete");
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) throws Exception {
            add("writable " + context.channel().isWritable());
        }
    }
}
