package io.quoit.netty;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A process to which something is denied; {@link DeniedTest} starts it. It prints "passed", or fails. In this folder for
 * its own calls of native code, which need a newer Java than the transport. */
final class Denied {
    /** Of which some have room for their rings, and some not. */
    private static final int LOOPS = 6;

    private Denied() {}

    public static void main(String[] arguments) throws Throwable {
        if (arguments[0].equals("seccomp")) {
            denySetup();
            List<QuoitLoopSnapshot> loops = serve(2);
            check(loops.size() == 2 && loops.stream().allMatch(Denied::isOnEpoll), "all on epoll: " + loops);
            checkNames(loops.get(0).engineReason(), "io_uring_setup", "seccomp");
            checkNames(refusal(1), "io_uring_setup", "seccomp");
            check(!Quoit.doctor().uringUsable(), "the doctor has seen nothing");
            checkNames(Quoit.doctor().toString(), "seccomp");
        } else if (arguments[0].equals("memory")) {
            // Of which the virtual machine takes some too, but a loop more.
            leaveAddressSpace(32L << 20);
            for (QuoitEngine engine : QuoitEngine.values()) {
                checkNames(refusal(1, engine), "memory");
            }
            leaveAddressSpace(4L << 30);
            check(serve(1).size() == 1, "it is made when there is room");
        } else {
            List<QuoitLoopSnapshot> loops = serve(LOOPS);
            long onEpoll = loops.stream().filter(Denied::isOnEpoll).count();
            if (onEpoll == 0) {
                System.out.println("this kernel's rings are not counted as locked memory");
                return;
            }
            check(onEpoll < LOOPS, "the first loops had room: " + loops);
            String reason = loops.stream().filter(Denied::isOnEpoll).findFirst().orElseThrow().engineReason();
            checkNames(reason, "RLIMIT_MEMLOCK", "ulimit -l", "512 KiB");
            checkNames(refusal(LOOPS), "RLIMIT_MEMLOCK", "ulimit -l", "512 KiB");
        }
        System.out.println("passed");
    }

    private static boolean isOnEpoll(QuoitLoopSnapshot loop) {
        return loop.engine() == QuoitEngine.EPOLL;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void checkNames(String text, String... words) {
        for (String word : words) {
            check(text.contains(word), "\"" + word + "\" is not named in: " + text);
        }
    }

    /** Serves an echo on each loop of a group of {@link QuoitEngine#AUTO}, and answers what the loops are. */
    private static List<QuoitLoopSnapshot> serve(int count) throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(count, QuoitIoHandler.newFactory());
        try {
            Channel server = Peers.serve(group, Peers.Echo::new);
            for (int connection = 0; connection < 2 * count; connection++) {
                Peers.Keeper keeper = new Peers.Keeper();
                Channel client = new Bootstrap()
                        .group(group)
                        .channel(QuoitSocketChannel.class)
                        .handler(keeper)
                        .connect(server.localAddress())
                        .sync()
                        .channel();
                byte[] bytes = Peers.bytes(1000 + connection);
                client.writeAndFlush(Peers.direct(bytes)).sync();
                for (int received = 0; received < bytes.length; ) {
                    ByteBuf message = keeper.message();
                    for (; message.isReadable(); received++) {
                        check(message.readByte() == bytes[received], "byte " + received + " differs");
                    }
                    message.release();
                }
                client.close().sync();
            }
            return Quoit.loops();
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    /** With what message a group fails that must have io_uring. */
    private static String refusal(int count) {
        return refusal(count, QuoitEngine.URING);
    }

    private static String refusal(int count, QuoitEngine engine) {
        QuoitIoHandlerConfig config = QuoitIoHandlerConfig.defaults().withEngine(engine);
        try {
            new MultiThreadIoEventLoopGroup(count, QuoitIoHandler.newFactory(config)).shutdownGracefully();
        } catch (IllegalStateException failure) {
            check(failure.getCause() instanceof UnsupportedOperationException, "another cause: " + failure.getCause());
            return failure.getCause().getMessage();
        }
        throw new AssertionError(engine + " was to be had");
    }

    /** Leaves this process so much more address space than it has ({@code RLIMIT_AS}). */
    private static void leaveAddressSpace(long bytes) throws Throwable {
        Linker linker = Linker.nativeLinker();
        var setrlimit = linker.downcallHandle(
                linker.defaultLookup().findOrThrow("setrlimit"), FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
        int addressSpace = 9;
        String size = Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith("VmSize:"))
                .findFirst()
                .orElseThrow();
        long present = Long.parseLong(size.replaceAll("\\D", "")) << 10;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment limit = arena.allocate(JAVA_LONG, 2);
            limit.setAtIndex(JAVA_LONG, 0, present + bytes);
            limit.setAtIndex(JAVA_LONG, 1, -1);
            check((int) setrlimit.invokeExact(addressSpace, limit) == 0, "setrlimit");
        }
    }

    /** {@code io_uring_setup(2)} returns EPERM from now on, in all threads, as container runtimes have it. */
    private static void denySetup() throws Throwable {
        Linker linker = Linker.nativeLinker();
        var syscall = linker.downcallHandle(
                linker.defaultLookup().findOrThrow("syscall"),
                FunctionDescriptor.of(JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, JAVA_LONG),
                Linker.Option.firstVariadicArg(1));
        boolean arm = System.getProperty("os.arch").equals("aarch64");
        // seccomp(2), prctl(2): their numbers, and what is asked of them.
        long seccomp = arm ? 277 : 317;
        long prctl = arm ? 167 : 157;
        long noNewPrivileges = 38;
        long setModeFilter = 1;
        long allThreads = 1;
        long[][] filter = {
            // Load the number of the call; if it is io_uring_setup's, then EPERM, else allow.
            {0x20, 0, 0, 0},
            {0x15, 0, 1, 425},
            {0x06, 0, 0, 0x0005_0001},
            {0x06, 0, 0, 0x7fff_0000},
        };
        try (Arena arena = Arena.ofConfined()) {
            // struct sock_filter: code, jump if true, jump if false, value.
            MemorySegment filters = arena.allocate(8L * filter.length, 8);
            for (int at = 0; at < filter.length; at++) {
                filters.set(JAVA_SHORT, 8L * at, (short) filter[at][0]);
                filters.set(JAVA_SHORT, 8L * at + 2, (short) (filter[at][1] | filter[at][2] << 8));
                filters.set(JAVA_INT, 8L * at + 4, (int) filter[at][3]);
            }
            MemorySegment program = arena.allocate(16, 8);
            program.set(JAVA_SHORT, 0, (short) filter.length);
            program.set(ADDRESS, 8, filters);
            check((long) syscall.invokeExact(prctl, noNewPrivileges, 1L, MemorySegment.NULL, 0L, 0L) == 0, "prctl");
            check((long) syscall.invokeExact(seccomp, setModeFilter, allThreads, program, 0L, 0L) == 0, "seccomp");
        }
    }
}
