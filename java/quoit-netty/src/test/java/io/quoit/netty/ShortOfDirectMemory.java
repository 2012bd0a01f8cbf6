package io.quoit.netty;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A process with little direct memory, which {@link DirectMemoryTest} starts: it takes all, and then wants event loops. */
final class ShortOfDirectMemory {
    private static final int PIECE = 64 << 10;
    private static final int ATTEMPTS = 3;

    private ShortOfDirectMemory() {}

    /** Takes the engine; prints what is left open behind loops that could not be made. */
    public static void main(String[] arguments) throws Exception {
        IoHandlerFactory factory = QuoitIoHandler.newFactory(
                QuoitIoHandlerConfig.defaults().withEngine(QuoitEngine.valueOf(arguments[0])));
        Deque<ByteBuffer> all = new ArrayDeque<>();
        try {
            while (true) {
                all.add(ByteBuffer.allocateDirect(PIECE));
            }
        } catch (OutOfMemoryError full) {
            // What little a loop wants first is there, and what it wants behind its native part is not.
            all.remove();
        }
        fail(factory);
        long before = descriptors();
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            fail(factory);
        }
        System.out.println("left open: " + (descriptors() - before));
        all.clear();
        // An allocation that finds none collects what nobody has any more.
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, factory);
        group.next().submit(() -> {}).sync();
        System.out.println("then its number is " + Quoit.loops().get(0).loop());
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private static void fail(IoHandlerFactory factory) {
        try {
            new MultiThreadIoEventLoopGroup(1, factory);
        } catch (OutOfMemoryError expected) {
            return;
        }
        throw new AssertionError("there was direct memory for a loop");
    }

    private static long descriptors() throws Exception {
        try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
            return open.count();
        }
    }
}
