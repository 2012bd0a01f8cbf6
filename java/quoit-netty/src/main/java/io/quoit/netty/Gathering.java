package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import java.util.ArrayList;
import java.util.Arrays;

/**
 * Small messages of one flush, copied together so that many of them are one lent piece: a piece costs a command, an entry
 * of the kernel's vector and an acknowledgement, which is more than copying a KiB. The messages themselves stay in Netty's
 * queue until the library says that they were sent, as those do whose own memory is lent; the copies stay until nothing of
 * the connection is lent any more. The loop's thread only.
 */
final class Gathering {
    /** As the start of a piece: there is no such piece. */
    static final long NONE = -1;

    private final GatherPool pool;
    /** Those that were filled, and the one that is being filled. */
    private final ArrayList<GatherPool.Chunk> chunks = new ArrayList<>(2);

    private GatherPool.Chunk last;
    /** Where the bytes of the last chunk begin that are not lent yet, and where they end. */
    private int begin;

    private int end;

    /** Of each piece that was taken: where it begins and ends, in bytes lent. */
    private long[] bounds = new long[8];

    private int pieces;

    Gathering(GatherPool pool) {
        this.pool = pool;
    }

    /** Whether the last chunk has room for so many bytes. */
    boolean hasRoom(int length) {
        return last != null && length <= GatherPool.CHUNK_BYTES - end;
    }

    /** Begins another chunk, when what the last one has was taken; false if there is none. */
    boolean open() {
        last = pool.take();
        begin = 0;
        end = 0;
        if (last == null) {
            return false;
        }
        chunks.add(last);
        return true;
    }

    /** Copies a message's readable bytes. */
    void add(ByteBuf bytes, int length) {
        DirectCopy.into(last.memory, last.address, end, bytes, length);
        end += length;
    }

    /** Bytes that are to be lent. */
    int length() {
        return end - begin;
    }

    /** Makes these bytes a piece, which begins after so many bytes lent; answers their address. */
    long take(long start) {
        if (2 * pieces == bounds.length) {
            bounds = Arrays.copyOf(bounds, 2 * bounds.length);
        }
        bounds[2 * pieces] = start;
        bounds[2 * pieces + 1] = start + length();
        pieces++;
        long address = last.address + begin;
        begin = end;
        return address;
    }

    /** Where the piece begins that ends at a token; {@link #NONE} if that one was not gathered. */
    long start(long token) {
        for (int piece = 0; piece < pieces; piece++) {
            if (bounds[2 * piece + 1] == token) {
                return bounds[2 * piece];
            }
        }
        return NONE;
    }

    /** Nothing is lent any more. */
    void release() {
        for (int chunk = 0; chunk < chunks.size(); chunk++) {
            pool.give(chunks.get(chunk));
        }
        chunks.clear();
        last = null;
        begin = 0;
        end = 0;
        pieces = 0;
    }
}
