package io.quoit.netty;

import java.nio.ByteBuffer;

/**
 * The calls of libquoit and of the C library that this package makes. Pointers are numbers; memory that Java passes is
 * that of direct byte buffers in native order. Unless a call says otherwise it returns what the C function does, with a
 * negative errno on failure. There are two: by the foreign function interface, which needs Java 22 and is in the jar's folder
 * for that, and by JNI.
 */
abstract class NativeLibrary {
    /** By the foreign function interface: {@code FfmLibrary}. */
    static final String FFM = "ffm";
    /** By JNI: {@link JniLibrary}. */
    static final String JNI = "jni";

    /** How it calls native code: one of the two. */
    abstract String access();

    // ---- memory ----

    /** The address of a direct buffer's first byte. */
    abstract long address(ByteBuffer direct);

    /** Native memory as a buffer in native order, which keeps nothing alive. */
    abstract ByteBuffer view(long address, int length);

    /** The 64 bits at an address. */
    abstract long longAt(long address);

    /** The 32 bits at an address. */
    abstract int intAt(long address);

    /** Copies bytes from one address to another; the two ranges do not overlap. */
    abstract void copy(long from, long to, int length);

    /** The text at an address, up to its NUL; empty for address 0. */
    abstract String text(long address);

    /** Whether a thread is virtual. */
    abstract boolean isVirtual(Thread thread);

    // ---- libquoit ----

    abstract String version();

    abstract String layout();

    abstract int abiCheck(int version);

    /** The text of this thread's last failed call. */
    abstract String errorText();

    abstract int configDefault(long config);

    abstract int connectOptionsDefault(long options);

    abstract int listenOptionsDefault(long options);

    abstract int datagramOptionsDefault(long options);

    abstract int counterDescribe(int index, long info);

    abstract int capabilitiesProbe(long config, long out);

    abstract int capabilitiesUsable(long capabilities);

    abstract String capabilitiesReason(long capabilities);

    abstract int capabilitiesGet(long capabilities, int index, long capability);

    abstract void capabilitiesFree(long capabilities);

    abstract int socketAdopt(int descriptor, long out);

    abstract int datagramSocketAdopt(int descriptor, long options, long out);

    abstract int loopCreate(long config, int index, long out);

    abstract int loopDestroy(long loop);

    abstract int turn(long loop, long commands, long count, long events, long capacity, long timeoutNanos);

    abstract int engine(long loop);

    abstract String engineReason(long loop);

    abstract int listen(long loop, long socket, long options, long out);

    abstract int openDatagram(long loop, long socket, long token, long out);

    abstract int connectionDescriptor(long loop, long connection);

    abstract long takenByPeer(long loop, long connection);

    abstract long queued(long loop, long connection);

    abstract long trySend(long loop, long connection, long pieces, long count);

    abstract int loopCounters(long loop, long counters);

    abstract int loopRemote(long loop, long out);

    abstract void remoteRelease(long remote);

    abstract int remoteWake(long remote);

    abstract long remoteReturnLeases(long remote, long leases, long count);

    abstract int remoteCounters(long remote, long counters);

    // ---- the C library ----

    abstract int socket(int family, int type);

    abstract int bind(int descriptor, long address, int length);

    abstract int connect(int descriptor, long address, int length);

    abstract int listenOn(int descriptor, int backlog);

    abstract int close(int descriptor);

    abstract int shutdown(int descriptor, int how);

    abstract int duplicate(int descriptor);

    abstract int socketName(int descriptor, long address, long length);

    abstract int peerName(int descriptor, long address, long length);

    abstract int setOption(int descriptor, int level, int name, long value, int length);

    abstract int getOption(int descriptor, int level, int name, long value, long length);
}
