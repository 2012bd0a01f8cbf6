package io.quoit.netty;

import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;

/**
 * Native memory for the lists of pieces that the sends of one batch name: {@code struct iovec}, an address and a length
 * each. The library reads a list when it takes the batch, so a list must stay where it is until then: lists are written
 * into pages, each of as many pieces as one send may have. The loop's thread only.
 */
final class PieceLists {
    /** Pieces of one send: {@code UIO_MAXIOV}. */
    private static final int MOST = 1024;

    private static final int PIECE_BYTES = 16;
    private static final int LENGTH = 8;

    private static final int PAGE_BYTES = MOST * PIECE_BYTES;

    /** What a list begins with room for at least; with less, it has the next page. */
    private static final int LEAST_BYTES = 64 * PIECE_BYTES;

    /** Pages that are kept from one batch to the next. */
    private static final int KEPT_PAGES = 16;

    private final NativeLibrary library;
    private final ArrayList<ByteBuffer> pages = new ArrayList<>();
    private int page;
    /** Of the page: where the list begins, and where its next piece goes. */
    private int begin;

    private int end;
    /** Bytes of the list's pieces. */
    private long bytes;

    private ByteBuffer memory;
    private long address;

    PieceLists(NativeLibrary library) {
        this.library = library;
    }

    /** Begins a list. */
    void begin() {
        if (memory == null) {
            open(0);
        } else if (PAGE_BYTES - end < LEAST_BYTES) {
            open(page + 1);
        }
        begin = end;
        bytes = 0;
    }

    private void open(int next) {
        if (next == pages.size()) {
            pages.add(ByteBuffer.allocateDirect(PAGE_BYTES).order(ByteOrder.nativeOrder()));
        }
        page = next;
        memory = pages.get(next);
        address = library.address(memory);
        end = 0;
    }

    boolean isFull() {
        return end == PAGE_BYTES;
    }

    /** Adds the pieces of direct memory that a buffer's readable bytes are in, as far as the list has room. */
    void add(ByteBuf bytes) {
        if (bytes.hasMemoryAddress()) {
            add(bytes.memoryAddress() + bytes.readerIndex(), bytes.readableBytes());
        } else if (bytes.nioBufferCount() == 1) {
            // The buffer's own view: any other would be made for this.
            add(bytes.internalNioBuffer(bytes.readerIndex(), bytes.readableBytes()));
        } else {
            for (ByteBuffer part : bytes.nioBuffers(bytes.readerIndex(), bytes.readableBytes())) {
                if (isFull()) {
                    return;
                }
                if (part.hasRemaining()) {
                    add(part);
                }
            }
        }
    }

    private void add(ByteBuffer part) {
        add(library.address(part) + part.position(), part.remaining());
    }

    private void add(long from, int length) {
        memory.putLong(end, from);
        memory.putLong(end + LENGTH, length);
        end += PIECE_BYTES;
        bytes += length;
    }

    /** Gives up the list: the next one takes its place. */
    void drop() {
        end = begin;
        bytes = 0;
    }

    /** How many pieces of the list its first bytes are in. */
    int covering(long bytes) {
        int pieces = 0;
        for (long left = bytes; left > 0; pieces++) {
            left -= memory.getLong(begin + pieces * PIECE_BYTES + LENGTH);
        }
        return pieces;
    }

    /** Pieces of the list. */
    int count() {
        return (end - begin) / PIECE_BYTES;
    }

    /** Bytes of the list. */
    long bytes() {
        return bytes;
    }

    /** Where the list begins. */
    long address() {
        return address + begin;
    }

    /** The library has read all lists. */
    void taken() {
        if (memory == null) {
            return;
        }
        while (pages.size() > KEPT_PAGES) {
            pages.remove(pages.size() - 1);
        }
        open(0);
    }
}
