package io.quoit.netty;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.netty.util.concurrent.FastThreadLocal;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The library by the foreign function interface. Made by name, by {@link NativeLoader}, which sets the file first. */
final class FfmLibrary extends NativeLibrary {
    private static final Linker LINKER = Linker.nativeLinker();
    /** The library stays loaded: leases and remotes outlive their loops. */
    private static final SymbolLookup QUOIT = open();
    private static final SymbolLookup LIBC = LINKER.defaultLookup();

    private static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");
    private static final VarHandle ERRNO_FIELD =
            Linker.Option.captureStateLayout().varHandle(MemoryLayout.PathElement.groupElement("errno"));

    /** Pointers, sizes and ids are all 64 bits here; quoit.h is for such machines only. */
    private static final ValueLayout.OfLong P = JAVA_LONG;

    private static final ValueLayout.OfInt I = JAVA_INT;

    private static final MethodHandle VERSION = quoit("version", FunctionDescriptor.of(P));
    private static final MethodHandle LAYOUT = quoit("layout", FunctionDescriptor.of(P));
    private static final MethodHandle ABI_CHECK = quoit("abi_check", FunctionDescriptor.of(I, I));
    private static final MethodHandle ERROR_TEXT = quoit("error_text", FunctionDescriptor.of(I, P, P));
    private static final MethodHandle CONFIG_DEFAULT = quoit("config_default", FunctionDescriptor.of(I, P));
    private static final MethodHandle CONNECT_OPTIONS_DEFAULT =
            quoit("connect_options_default", FunctionDescriptor.of(I, P));
    private static final MethodHandle LISTEN_OPTIONS_DEFAULT =
            quoit("listen_options_default", FunctionDescriptor.of(I, P));
    private static final MethodHandle DATAGRAM_OPTIONS_DEFAULT =
            quoit("datagram_options_default", FunctionDescriptor.of(I, P));
    private static final MethodHandle COUNTER_DESCRIBE = quoit("counter_describe", FunctionDescriptor.of(I, I, P));
    private static final MethodHandle CAPABILITIES_PROBE = quoit("capabilities_probe", FunctionDescriptor.of(I, P, P));
    private static final MethodHandle CAPABILITIES_USABLE = quoit("capabilities_usable", FunctionDescriptor.of(I, P));
    private static final MethodHandle CAPABILITIES_REASON =
            quoit("capabilities_reason", FunctionDescriptor.of(I, P, P, P));
    private static final MethodHandle CAPABILITIES_GET = quoit("capabilities_get", FunctionDescriptor.of(I, P, I, P));
    private static final MethodHandle CAPABILITIES_FREE = quoit("capabilities_free", FunctionDescriptor.ofVoid(P));
    private static final MethodHandle SOCKET_ADOPT = quoit("socket_adopt", FunctionDescriptor.of(I, I, P));
    private static final MethodHandle DATAGRAM_SOCKET_ADOPT =
            quoit("datagram_socket_adopt", FunctionDescriptor.of(I, I, P, P));
    private static final MethodHandle LOOP_CREATE = quoit("loop_create", FunctionDescriptor.of(I, P, I, P));
    private static final MethodHandle LOOP_DESTROY = quoit("loop_destroy", FunctionDescriptor.of(I, P));
    private static final MethodHandle TURN = quoit("turn", FunctionDescriptor.of(I, P, P, P, P, P, P));
    private static final MethodHandle ENGINE = quoit("engine", FunctionDescriptor.of(I, P));
    private static final MethodHandle ENGINE_REASON = quoit("engine_reason", FunctionDescriptor.of(I, P, P, P));
    private static final MethodHandle LISTEN = quoit("listen", FunctionDescriptor.of(I, P, P, P, P));
    private static final MethodHandle OPEN_DATAGRAM = quoit("open_datagram", FunctionDescriptor.of(I, P, P, P, P));
    private static final MethodHandle CONNECTION_FD = quoit("connection_fd", FunctionDescriptor.of(I, P, P));
    private static final MethodHandle TAKEN_BY_PEER = quoit("taken_by_peer", FunctionDescriptor.of(P, P, P));
    private static final MethodHandle QUEUED = quoit("queued", FunctionDescriptor.of(P, P, P));
    private static final MethodHandle TRY_SEND = quoit("try_send", FunctionDescriptor.of(P, P, P, P, P));
    private static final MethodHandle LOOP_COUNTERS = quoit("loop_counters", FunctionDescriptor.of(I, P, P));
    private static final MethodHandle LOOP_REMOTE = quoit("loop_remote", FunctionDescriptor.of(I, P, P));
    private static final MethodHandle REMOTE_RELEASE = quoit("remote_release", FunctionDescriptor.ofVoid(P));
    private static final MethodHandle REMOTE_WAKE = quoit("remote_wake", FunctionDescriptor.of(I, P));
    private static final MethodHandle REMOTE_RETURN_LEASES =
            quoit("remote_return_leases", FunctionDescriptor.of(P, P, P, P));
    private static final MethodHandle REMOTE_COUNTERS = quoit("remote_counters", FunctionDescriptor.of(I, P, P));

    private static final MethodHandle C_SOCKET = libc("socket", FunctionDescriptor.of(I, I, I, I));
    private static final MethodHandle C_BIND = libc("bind", FunctionDescriptor.of(I, I, P, I));
    private static final MethodHandle C_CONNECT = libc("connect", FunctionDescriptor.of(I, I, P, I));
    private static final MethodHandle C_LISTEN = libc("listen", FunctionDescriptor.of(I, I, I));
    private static final MethodHandle C_CLOSE = libc("close", FunctionDescriptor.of(I, I));
    private static final MethodHandle C_SHUTDOWN = libc("shutdown", FunctionDescriptor.of(I, I, I));
    private static final MethodHandle C_FCNTL =
            libc("fcntl", FunctionDescriptor.of(I, I, I, I), Linker.Option.firstVariadicArg(2));
    private static final MethodHandle C_GETSOCKNAME = libc("getsockname", FunctionDescriptor.of(I, I, P, P));
    private static final MethodHandle C_GETPEERNAME = libc("getpeername", FunctionDescriptor.of(I, I, P, P));
    private static final MethodHandle C_SETSOCKOPT = libc("setsockopt", FunctionDescriptor.of(I, I, I, I, P, I));
    private static final MethodHandle C_GETSOCKOPT = libc("getsockopt", FunctionDescriptor.of(I, I, I, I, P, P));

    /** {@code F_DUPFD_CLOEXEC} of Linux. */
    private static final int DUPLICATE_CLOSE_ON_EXEC = 1030;

    private static final int TEXT_BYTES = 1024;

    /** All memory, for what the library points to. */
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    FfmLibrary() {}

    private static SymbolLookup open() {
        try {
            return SymbolLookup.libraryLookup(NativeLoader.file(), Arena.global());
        } catch (IllegalArgumentException withoutReason) {
            // This one says what the dynamic linker said.
            System.load(NativeLoader.file().toString());
            return SymbolLookup.loaderLookup();
        }
    }

    private static MethodHandle quoit(String name, FunctionDescriptor type) {
        MemorySegment symbol = QUOIT.find("quoit_" + name)
                .orElseThrow(() -> new UnsatisfiedLinkError("it lacks quoit_" + name
                        + ": it is libquoit of another version; install the one that belongs to this jar's version"));
        return LINKER.downcallHandle(symbol, type);
    }

    private static MethodHandle libc(String name, FunctionDescriptor type, Linker.Option... options) {
        Linker.Option[] all = java.util.Arrays.copyOf(options, options.length + 1);
        all[options.length] = ERRNO;
        return LINKER.downcallHandle(LIBC.find(name).orElseThrow(), type, all);
    }

    /** Native calls throw nothing but what the virtual machine throws. */
    private static RuntimeException thrown(Throwable cause) {
        if (cause instanceof RuntimeException exception) {
            return exception;
        }
        if (cause instanceof Error error) {
            throw error;
        }
        return new IllegalStateException(cause);
    }

    private interface Call {
        int apply(MemorySegment state) throws Throwable;
    }

    /** Where a call of the C library leaves its error: the thread's own, for each accepted connection makes some calls. */
    private static final FastThreadLocal<MemorySegment> STATE = new FastThreadLocal<>() {
        @Override
        protected MemorySegment initialValue() {
            return Arena.ofAuto().allocate(Linker.Option.captureStateLayout());
        }
    };

    /** A call of the C library, which returns -errno. */
    private static int system(Call call) {
        try {
            MemorySegment state = STATE.get();
            int result = call.apply(state);
            return result >= 0 ? result : -(int) ERRNO_FIELD.get(state, 0L);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    private interface Fill {
        int apply(long buffer, long capacity) throws Throwable;
    }

    private static String filled(Fill fill) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment room = arena.allocate(TEXT_BYTES);
            int length = fill.apply(room.address(), TEXT_BYTES);
            return length < 0 ? "" : room.getString(0);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    String access() {
        return FFM;
    }

    @Override
    long address(ByteBuffer direct) {
        // The segment begins at the buffer's position.
        return MemorySegment.ofBuffer(direct).address() - direct.position();
    }

    @Override
    ByteBuffer view(long address, int length) {
        return MemorySegment.ofAddress(address).reinterpret(length).asByteBuffer().order(ByteOrder.nativeOrder());
    }

    @Override
    long longAt(long address) {
        return MEMORY.get(ValueLayout.JAVA_LONG_UNALIGNED, address);
    }

    @Override
    int intAt(long address) {
        return MEMORY.get(ValueLayout.JAVA_INT_UNALIGNED, address);
    }

    @Override
    void copy(long from, long to, int length) {
        MemorySegment.copy(MEMORY, from, MEMORY, to, length);
    }

    @Override
    String text(long address) {
        return address == 0 ? "" : MemorySegment.ofAddress(address).reinterpret(Long.MAX_VALUE).getString(0);
    }

    @Override
    boolean isVirtual(Thread thread) {
        return thread.isVirtual();
    }

    @Override
    String version() {
        try {
            return text((long) VERSION.invokeExact());
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    String layout() {
        try {
            return text((long) LAYOUT.invokeExact());
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int abiCheck(int version) {
        try {
            return (int) ABI_CHECK.invokeExact(version);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    String errorText() {
        return filled((buffer, capacity) -> (int) ERROR_TEXT.invokeExact(buffer, capacity));
    }

    @Override
    int configDefault(long config) {
        try {
            return (int) CONFIG_DEFAULT.invokeExact(config);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int connectOptionsDefault(long options) {
        try {
            return (int) CONNECT_OPTIONS_DEFAULT.invokeExact(options);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int listenOptionsDefault(long options) {
        try {
            return (int) LISTEN_OPTIONS_DEFAULT.invokeExact(options);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int datagramOptionsDefault(long options) {
        try {
            return (int) DATAGRAM_OPTIONS_DEFAULT.invokeExact(options);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int counterDescribe(int index, long info) {
        try {
            return (int) COUNTER_DESCRIBE.invokeExact(index, info);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int capabilitiesProbe(long config, long out) {
        try {
            return (int) CAPABILITIES_PROBE.invokeExact(config, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int capabilitiesUsable(long capabilities) {
        try {
            return (int) CAPABILITIES_USABLE.invokeExact(capabilities);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    String capabilitiesReason(long capabilities) {
        return filled((buffer, capacity) -> (int) CAPABILITIES_REASON.invokeExact(capabilities, buffer, capacity));
    }

    @Override
    int capabilitiesGet(long capabilities, int index, long capability) {
        try {
            return (int) CAPABILITIES_GET.invokeExact(capabilities, index, capability);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    void capabilitiesFree(long capabilities) {
        try {
            CAPABILITIES_FREE.invokeExact(capabilities);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int socketAdopt(int descriptor, long out) {
        try {
            return (int) SOCKET_ADOPT.invokeExact(descriptor, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int datagramSocketAdopt(int descriptor, long options, long out) {
        try {
            return (int) DATAGRAM_SOCKET_ADOPT.invokeExact(descriptor, options, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int loopCreate(long config, int index, long out) {
        try {
            return (int) LOOP_CREATE.invokeExact(config, index, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int loopDestroy(long loop) {
        try {
            return (int) LOOP_DESTROY.invokeExact(loop);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int turn(long loop, long commands, long count, long events, long capacity, long timeoutNanos) {
        try {
            return (int) TURN.invokeExact(loop, commands, count, events, capacity, timeoutNanos);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int engine(long loop) {
        try {
            return (int) ENGINE.invokeExact(loop);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    String engineReason(long loop) {
        return filled((buffer, capacity) -> (int) ENGINE_REASON.invokeExact(loop, buffer, capacity));
    }

    @Override
    int listen(long loop, long socket, long options, long out) {
        try {
            return (int) LISTEN.invokeExact(loop, socket, options, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int openDatagram(long loop, long socket, long token, long out) {
        try {
            return (int) OPEN_DATAGRAM.invokeExact(loop, socket, token, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int connectionDescriptor(long loop, long connection) {
        try {
            return (int) CONNECTION_FD.invokeExact(loop, connection);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    long takenByPeer(long loop, long connection) {
        try {
            return (long) TAKEN_BY_PEER.invokeExact(loop, connection);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    long queued(long loop, long connection) {
        try {
            return (long) QUEUED.invokeExact(loop, connection);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    long trySend(long loop, long connection, long pieces, long count) {
        try {
            return (long) TRY_SEND.invokeExact(loop, connection, pieces, count);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int loopCounters(long loop, long counters) {
        try {
            return (int) LOOP_COUNTERS.invokeExact(loop, counters);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int loopRemote(long loop, long out) {
        try {
            return (int) LOOP_REMOTE.invokeExact(loop, out);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    void remoteRelease(long remote) {
        try {
            REMOTE_RELEASE.invokeExact(remote);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int remoteWake(long remote) {
        try {
            return (int) REMOTE_WAKE.invokeExact(remote);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    long remoteReturnLeases(long remote, long leases, long count) {
        try {
            return (long) REMOTE_RETURN_LEASES.invokeExact(remote, leases, count);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int remoteCounters(long remote, long counters) {
        try {
            return (int) REMOTE_COUNTERS.invokeExact(remote, counters);
        } catch (Throwable cause) {
            throw thrown(cause);
        }
    }

    @Override
    int socket(int family, int type) {
        return system(state -> (int) C_SOCKET.invokeExact(state, family, type, 0));
    }

    @Override
    int bind(int descriptor, long address, int length) {
        return system(state -> (int) C_BIND.invokeExact(state, descriptor, address, length));
    }

    @Override
    int connect(int descriptor, long address, int length) {
        return system(state -> (int) C_CONNECT.invokeExact(state, descriptor, address, length));
    }

    @Override
    int listenOn(int descriptor, int backlog) {
        return system(state -> (int) C_LISTEN.invokeExact(state, descriptor, backlog));
    }

    @Override
    int close(int descriptor) {
        return system(state -> (int) C_CLOSE.invokeExact(state, descriptor));
    }

    @Override
    int shutdown(int descriptor, int how) {
        return system(state -> (int) C_SHUTDOWN.invokeExact(state, descriptor, how));
    }

    @Override
    int duplicate(int descriptor) {
        return system(state -> (int) C_FCNTL.invokeExact(state, descriptor, DUPLICATE_CLOSE_ON_EXEC, 0));
    }

    @Override
    int socketName(int descriptor, long address, long length) {
        return system(state -> (int) C_GETSOCKNAME.invokeExact(state, descriptor, address, length));
    }

    @Override
    int peerName(int descriptor, long address, long length) {
        return system(state -> (int) C_GETPEERNAME.invokeExact(state, descriptor, address, length));
    }

    @Override
    int setOption(int descriptor, int level, int name, long value, int length) {
        return system(state -> (int) C_SETSOCKOPT.invokeExact(state, descriptor, level, name, value, length));
    }

    @Override
    int getOption(int descriptor, int level, int name, long value, long length) {
        return system(state -> (int) C_GETSOCKOPT.invokeExact(state, descriptor, level, name, value, length));
    }
}
