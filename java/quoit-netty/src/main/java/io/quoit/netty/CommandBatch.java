package io.quoit.netty;

import io.quoit.netty.Abi.Command;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;

/** The commands of the next turn, in native memory, and memory for the bytes that it copies. The loop's thread only. */
final class CommandBatch {
    private static final int FIRST_CAPACITY = 1024;

    private static final int CACHE_LINE_BYTES = 64;

    private final NativeLibrary library;
    private ByteBuffer memory;
    private long address;
    private int count;
    /** How many batches were taken. */
    private int batch;

    /** What commands of this batch point to and nobody else keeps. */
    private final ArrayList<ByteBuffer> kept = new ArrayList<>();

    private final PieceLists pieces;
    private final ByteBuffer staging;
    private final long stagingAddress;
    private final int halfBytes;
    /** The half that the present batch uses; the other is kept until what the last one sent cannot be refused any more. */
    private int half;

    private int staged;
    private boolean otherBusy;

    CommandBatch(NativeLibrary library, int stagingBytes) {
        this.library = library;
        pieces = new PieceLists(library);
        room(FIRST_CAPACITY);
        staging = ByteBuffer.allocateDirect(stagingBytes).order(ByteOrder.nativeOrder());
        stagingAddress = library.address(staging);
        halfBytes = stagingBytes / 2;
    }

    private void room(int capacity) {
        ByteBuffer larger = ByteBuffer.allocateDirect(capacity * Command.SIZE).order(ByteOrder.nativeOrder());
        if (memory != null) {
            larger.put(0, memory, 0, count * Command.SIZE);
        }
        memory = larger;
        address = library.address(larger);
    }

    long address() {
        return address;
    }

    int count() {
        return count;
    }

    /** The turn has taken the commands. */
    void taken() {
        count = 0;
        batch++;
        kept.clear();
        pieces.taken();
        if (!otherBusy) {
            otherBusy = true;
            half = 1 - half;
            staged = half * halfBytes;
        }
    }

    // ---- commands; each returns its place ----

    private int add(int kind, int flags, long target, long token) {
        if (count * Command.SIZE == memory.capacity()) {
            room(2 * count);
        }
        int at = count++ * Command.SIZE;
        // The reserve and what this kind does not read is zero.
        memory.putLong(at + Command.KIND, kind | (long) flags << 16);
        memory.putLong(at + Command.TARGET, target);
        memory.putLong(at + Command.TOKEN, token);
        memory.putLong(at + Command.DATA, 0);
        memory.putLong(at + Command.LENGTH, 0);
        memory.putLong(at + Command.LEASE, 0);
        memory.putLong(at + Command.TIME_NS, 0);
        return at;
    }

    void returnLease(long lease) {
        memory.putLong(add(Abi.COMMAND_RETURN_LEASE, 0, 0, 0) + Command.LEASE, lease);
    }

    /** A command that has a target and nothing else. */
    void simple(int kind, long target) {
        add(kind, 0, target, 0);
    }

    /** Closes gracefully within the time; negative: the loop's. */
    void close(long connection, long nanos) {
        memory.putLong(add(Abi.COMMAND_CLOSE, 0, connection, 0) + Command.TIME_NS, nanos);
    }

    void connect(ByteBuffer options, long address, int length, long token) {
        kept.add(options);
        int at = add(Abi.COMMAND_CONNECT, Abi.FLAG_PAUSED, 0, token);
        memory.putLong(at + Command.DATA, address).putInt(at + Command.LENGTH, length);
    }

    /** Attaches a descriptor, paused. */
    int attach(int descriptor, long token) {
        int at = add(Abi.COMMAND_ATTACH, Abi.FLAG_PAUSED, 0, token);
        memory.putInt(at + Command.DESCRIPTOR, descriptor);
        return at;
    }

    /** The number of the present batch. */
    int batch() {
        return batch;
    }

    /** Lets an attach receive at once; false if the batch that it is of has been taken. */
    boolean attachReceiving(int at, int of) {
        if (of != batch) {
            return false;
        }
        memory.putShort(at + Command.FLAGS, (short) 0);
        return true;
    }

    /** Copies bytes in native memory, which must last until the batch is taken. */
    int send(long connection, long data, int length, long token) {
        int at = add(Abi.COMMAND_SEND, 0, connection, token);
        memory.putLong(at + Command.DATA, data).putInt(at + Command.LENGTH, length);
        return at;
    }

    /** Lengthens a send of this batch, whose bytes may stand elsewhere now. */
    void sendMore(int at, long data, int length) {
        memory.putLong(at + Command.DATA, data).putInt(at + Command.LENGTH, length);
    }

    /** The list for the next {@link #sendPieces}: to be begun, and filled, by whoever sends. */
    PieceLists pieces() {
        return pieces;
    }

    /**
     * Lends the pieces of the list, as one send. The library tells of parts as they leave, too: with the token less the bytes
     * that are still to go.
     */
    void sendPieces(long connection, long token) {
        int at = add(Abi.COMMAND_SEND_GATHERED, Abi.FLAG_PROGRESS, connection, token);
        memory.putLong(at + Command.DATA, pieces.address()).putInt(at + Command.LENGTH, pieces.count());
    }

    /** Keeps memory that a command of this batch points to until the batch is taken. */
    void keep(ByteBuffer room) {
        kept.add(room);
    }

    /** Sends {@code sends} quoit_datagram_send, whose memory must last until the batch is taken. */
    void sendDatagrams(long socket, long data, int sends, long token) {
        int at = add(Abi.COMMAND_SEND_DATAGRAMS, 0, socket, token);
        memory.putLong(at + Command.DATA, data).putInt(at + Command.LENGTH, sends);
    }

    // ---- staging ----

    /** Reserves a region for bytes that the next turn copies, and returns its offset; -1 if there is no room. */
    int stage(int bytes) {
        int region = staged;
        if (bytes > halfEnd() - region) {
            return -1;
        }
        staged = behind(region, bytes);
        return region;
    }

    /** What a region of so many bytes may become where it is: longer only if it is the last one. */
    int roomAt(int region, int bytes) {
        return staged == behind(region, bytes) ? halfEnd() - region : bytes;
    }

    /** Lengthens the last region. */
    void extend(int region, int bytes) {
        staged = behind(region, bytes);
    }

    /** Makes a longer region of one that is not the last: elsewhere, with its bytes; returns its offset, or -1. */
    int move(int region, int bytes, int longer) {
        int moved = stage(longer);
        if (moved >= 0) {
            stage(moved, stagingAddress + region, bytes);
        }
        return moved;
    }

    private int halfEnd() {
        return (half + 1) * halfBytes;
    }

    /** Where the region behind one begins: on a line of its own. */
    private static int behind(int region, int bytes) {
        return region + bytes + CACHE_LINE_BYTES - 1 & -CACHE_LINE_BYTES;
    }

    /** All turns so far have told everything: what they read from the other half is needed no more. */
    void turnsTold() {
        otherBusy = false;
    }

    ByteBuffer staging() {
        return staging;
    }

    long stagingAddress() {
        return stagingAddress;
    }

    /** Copies bytes in native memory to a place that was reserved. */
    void stage(int at, long from, int length) {
        library.copy(from, stagingAddress + at, length);
    }
}
