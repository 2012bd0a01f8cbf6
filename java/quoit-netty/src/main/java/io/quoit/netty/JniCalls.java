package io.quoit.netty;

import java.nio.ByteBuffer;

/**
 * The functions of libquoit_jni, as its source in {@code crates/quoit-jni} has them: their signatures are compared before any
 * other is called. What they return is what {@link NativeLibrary} says.
 */
final class JniCalls {
    private JniCalls() {}

    /** The address of the text of a signature; 0 past the last. */
    static native long signature(int index);

    /** Opens libquoit; 0, or -1 with the reason in the buffer. */
    static native int open(long path, long buffer, int capacity);

    // ---- memory ----

    static native long address(ByteBuffer direct);

    static native ByteBuffer view(long address, int length);

    static native long longAt(long address);

    static native int intAt(long address);

    static native void copy(long from, long to, int length);

    /** How many bytes a text has before its NUL. */
    static native int textLength(long address);

    // ---- libquoit ----

    /** The address of a text. */
    static native long version();

    /** The address of a text. */
    static native long layout();

    static native int abiCheck(int version);

    static native int errorText(long buffer, long capacity);

    static native int configDefault(long config);

    static native int connectOptionsDefault(long options);

    static native int listenOptionsDefault(long options);

    static native int datagramOptionsDefault(long options);

    static native int counterDescribe(int index, long info);

    static native int capabilitiesProbe(long config, long out);

    static native int capabilitiesUsable(long capabilities);

    static native int capabilitiesReason(long capabilities, long buffer, long capacity);

    static native int capabilitiesGet(long capabilities, int index, long capability);

    static native void capabilitiesFree(long capabilities);

    static native int socketAdopt(int descriptor, long out);

    static native int datagramSocketAdopt(int descriptor, long options, long out);

    static native int loopCreate(long config, int index, long out);

    static native int loopDestroy(long loop);

    static native int turn(long loop, long commands, long count, long events, long capacity, long timeoutNanos);

    static native int engine(long loop);

    static native int engineReason(long loop, long buffer, long capacity);

    static native int listen(long loop, long socket, long options, long out);

    static native int openDatagram(long loop, long socket, long token, long out);

    static native int connectionDescriptor(long loop, long connection);

    static native long takenByPeer(long loop, long connection);

    static native long queued(long loop, long connection);

    static native long trySend(long loop, long connection, long pieces, long count);

    static native int loopCounters(long loop, long counters);

    static native int loopRemote(long loop, long out);

    static native void remoteRelease(long remote);

    static native int remoteWake(long remote);

    static native long remoteReturnLeases(long remote, long leases, long count);

    static native int remoteCounters(long remote, long counters);

    // ---- the C library ----

    static native int socket(int family, int type);

    static native int bind(int descriptor, long address, int length);

    static native int connect(int descriptor, long address, int length);

    static native int listenOn(int descriptor, int backlog);

    static native int close(int descriptor);

    static native int shutdown(int descriptor, int how);

    static native int duplicate(int descriptor);

    static native int socketName(int descriptor, long address, long length);

    static native int peerName(int descriptor, long address, long length);

    static native int setOption(int descriptor, int level, int name, long value, int length);

    static native int getOption(int descriptor, int level, int name, long value, long length);
}
