package io.quoit.netty;

import io.netty.util.internal.PlatformDependent;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;

/** The library by JNI, for a Java without the foreign function interface: {@link JniCalls}, with what Java can do better by itself. */
final class JniLibrary extends NativeLibrary {
    private static final int TEXT_BYTES = 1024;

    /** Netty has it on these versions of Java, and a read of memory is then no call. */
    private static final boolean UNSAFE = PlatformDependent.hasUnsafe();

    /** Of Java 21; null where there are no virtual threads. */
    private static final MethodHandle IS_VIRTUAL = isVirtual();

    /** Loads libquoit_jni, and has it open libquoit. */
    JniLibrary(Path jni, Path quoit) {
        try {
            System.load(jni.toString());
        } catch (UnsatisfiedLinkError failure) {
            String text = String.valueOf(failure.getMessage());
            throw new UnsupportedOperationException(jni + ", by which this Java calls libquoit, cannot be used: " + text
                    + BundledLibrary.remedy(text, BundledLibrary.JNI_BESIDE), failure);
        }
        String lacking = lacking(signatures());
        if (lacking != null) {
            throw new UnsupportedOperationException(jni + " lacks the function " + lacking
                    + ": it is of another version; install the one that belongs to this jar's version");
        }
        String failure = open(quoit);
        if (failure != null) {
            throw new UnsupportedOperationException(
                    quoit + " cannot be used: " + failure + BundledLibrary.remedy(failure, BundledLibrary.NAME_ANOTHER));
        }
    }

    /** A function that is declared here, and that is not there, or with other types; null if none. */
    static String lacking(Set<String> there) {
        for (String declared : declared()) {
            if (!there.contains(declared)) {
                return declared;
            }
        }
        return null;
    }

    /** What libquoit_jni has; nothing if it is something else. */
    static Set<String> signatures() {
        Set<String> there = new HashSet<>();
        try {
            for (long text = JniCalls.signature(0); text != 0; text = JniCalls.signature(there.size())) {
                // Which needs two more of the functions: these three stay as they are.
                there.add(textAt(text));
            }
        } catch (UnsatisfiedLinkError another) {
            return Set.of();
        }
        return there;
    }

    /** What is declared here. */
    static Set<String> declared() {
        Set<String> declared = new HashSet<>();
        for (Method method : JniCalls.class.getDeclaredMethods()) {
            if (Modifier.isNative(method.getModifiers())) {
                declared.add(method.getName()
                        + MethodType.methodType(method.getReturnType(), method.getParameterTypes())
                                .toMethodDescriptorString());
            }
        }
        return declared;
    }

    /** Why libquoit cannot be opened; null if it is. */
    private static String open(Path quoit) {
        byte[] path = quoit.toString().getBytes(StandardCharsets.UTF_8);
        ByteBuffer name = room(path.length + 1).put(path).put((byte) 0);
        ByteBuffer reason = room(TEXT_BYTES);
        if (JniCalls.open(JniCalls.address(name), JniCalls.address(reason), TEXT_BYTES) == 0) {
            return null;
        }
        return textIn(reason);
    }

    private static MethodHandle isVirtual() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException older) {
            return null;
        }
    }

    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    /** The text in a buffer, up to its NUL. */
    private static String textIn(ByteBuffer buffer) {
        return textAt(JniCalls.address(buffer));
    }

    private static String textAt(long address) {
        return StandardCharsets.UTF_8.decode(JniCalls.view(address, JniCalls.textLength(address))).toString();
    }

    private interface Fill {
        int apply(long buffer, long capacity);
    }

    private static String filled(Fill fill) {
        ByteBuffer room = room(TEXT_BYTES);
        return fill.apply(JniCalls.address(room), TEXT_BYTES) < 0 ? "" : textIn(room);
    }

    @Override
    String access() {
        return JNI;
    }

    @Override
    long address(ByteBuffer direct) {
        return UNSAFE ? PlatformDependent.directBufferAddress(direct) : JniCalls.address(direct);
    }

    @Override
    ByteBuffer view(long address, int length) {
        return JniCalls.view(address, length).order(ByteOrder.nativeOrder());
    }

    @Override
    long longAt(long address) {
        return UNSAFE ? PlatformDependent.getLong(address) : JniCalls.longAt(address);
    }

    @Override
    int intAt(long address) {
        return UNSAFE ? PlatformDependent.getInt(address) : JniCalls.intAt(address);
    }

    @Override
    void copy(long from, long to, int length) {
        if (UNSAFE) {
            PlatformDependent.copyMemory(from, to, length);
        } else {
            JniCalls.copy(from, to, length);
        }
    }

    @Override
    String text(long address) {
        return address == 0 ? "" : textAt(address);
    }

    @Override
    boolean isVirtual(Thread thread) {
        if (IS_VIRTUAL == null) {
            return false;
        }
        try {
            return (boolean) IS_VIRTUAL.invokeExact(thread);
        } catch (Throwable never) {
            throw new IllegalStateException(never);
        }
    }

    @Override
    String version() {
        return text(JniCalls.version());
    }

    @Override
    String layout() {
        return text(JniCalls.layout());
    }

    @Override
    String errorText() {
        return filled(JniCalls::errorText);
    }

    @Override
    String capabilitiesReason(long capabilities) {
        return filled((buffer, capacity) -> JniCalls.capabilitiesReason(capabilities, buffer, capacity));
    }

    @Override
    String engineReason(long loop) {
        return filled((buffer, capacity) -> JniCalls.engineReason(loop, buffer, capacity));
    }

    @Override
    int abiCheck(int version) {
        return JniCalls.abiCheck(version);
    }

    @Override
    int configDefault(long config) {
        return JniCalls.configDefault(config);
    }

    @Override
    int connectOptionsDefault(long options) {
        return JniCalls.connectOptionsDefault(options);
    }

    @Override
    int listenOptionsDefault(long options) {
        return JniCalls.listenOptionsDefault(options);
    }

    @Override
    int datagramOptionsDefault(long options) {
        return JniCalls.datagramOptionsDefault(options);
    }

    @Override
    int counterDescribe(int index, long info) {
        return JniCalls.counterDescribe(index, info);
    }

    @Override
    int capabilitiesProbe(long config, long out) {
        return JniCalls.capabilitiesProbe(config, out);
    }

    @Override
    int capabilitiesUsable(long capabilities) {
        return JniCalls.capabilitiesUsable(capabilities);
    }

    @Override
    int capabilitiesGet(long capabilities, int index, long capability) {
        return JniCalls.capabilitiesGet(capabilities, index, capability);
    }

    @Override
    void capabilitiesFree(long capabilities) {
        JniCalls.capabilitiesFree(capabilities);
    }

    @Override
    int socketAdopt(int descriptor, long out) {
        return JniCalls.socketAdopt(descriptor, out);
    }

    @Override
    int datagramSocketAdopt(int descriptor, long options, long out) {
        return JniCalls.datagramSocketAdopt(descriptor, options, out);
    }

    @Override
    int loopCreate(long config, int index, long out) {
        return JniCalls.loopCreate(config, index, out);
    }

    @Override
    int loopDestroy(long loop) {
        return JniCalls.loopDestroy(loop);
    }

    @Override
    int turn(long loop, long commands, long count, long events, long capacity, long timeoutNanos) {
        return JniCalls.turn(loop, commands, count, events, capacity, timeoutNanos);
    }

    @Override
    int engine(long loop) {
        return JniCalls.engine(loop);
    }

    @Override
    int listen(long loop, long socket, long options, long out) {
        return JniCalls.listen(loop, socket, options, out);
    }

    @Override
    int openDatagram(long loop, long socket, long token, long out) {
        return JniCalls.openDatagram(loop, socket, token, out);
    }

    @Override
    int connectionDescriptor(long loop, long connection) {
        return JniCalls.connectionDescriptor(loop, connection);
    }

    @Override
    long takenByPeer(long loop, long connection) {
        return JniCalls.takenByPeer(loop, connection);
    }

    @Override
    long queued(long loop, long connection) {
        return JniCalls.queued(loop, connection);
    }

    @Override
    long trySend(long loop, long connection, long pieces, long count) {
        return JniCalls.trySend(loop, connection, pieces, count);
    }

    @Override
    int loopCounters(long loop, long counters) {
        return JniCalls.loopCounters(loop, counters);
    }

    @Override
    int loopRemote(long loop, long out) {
        return JniCalls.loopRemote(loop, out);
    }

    @Override
    void remoteRelease(long remote) {
        JniCalls.remoteRelease(remote);
    }

    @Override
    int remoteWake(long remote) {
        return JniCalls.remoteWake(remote);
    }

    @Override
    long remoteReturnLeases(long remote, long leases, long count) {
        return JniCalls.remoteReturnLeases(remote, leases, count);
    }

    @Override
    int remoteCounters(long remote, long counters) {
        return JniCalls.remoteCounters(remote, counters);
    }

    @Override
    int socket(int family, int type) {
        return JniCalls.socket(family, type);
    }

    @Override
    int bind(int descriptor, long address, int length) {
        return JniCalls.bind(descriptor, address, length);
    }

    @Override
    int connect(int descriptor, long address, int length) {
        return JniCalls.connect(descriptor, address, length);
    }

    @Override
    int listenOn(int descriptor, int backlog) {
        return JniCalls.listenOn(descriptor, backlog);
    }

    @Override
    int close(int descriptor) {
        return JniCalls.close(descriptor);
    }

    @Override
    int shutdown(int descriptor, int how) {
        return JniCalls.shutdown(descriptor, how);
    }

    @Override
    int duplicate(int descriptor) {
        return JniCalls.duplicate(descriptor);
    }

    @Override
    int socketName(int descriptor, long address, long length) {
        return JniCalls.socketName(descriptor, address, length);
    }

    @Override
    int peerName(int descriptor, long address, long length) {
        return JniCalls.peerName(descriptor, address, length);
    }

    @Override
    int setOption(int descriptor, int level, int name, long value, int length) {
        return JniCalls.setOption(descriptor, level, name, value, length);
    }

    @Override
    int getOption(int descriptor, int level, int name, long value, long length) {
        return JniCalls.getOption(descriptor, level, name, value, length);
    }
}
