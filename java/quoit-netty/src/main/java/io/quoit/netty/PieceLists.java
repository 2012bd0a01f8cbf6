package io.quoit.netty;

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

    /** Adds a piece; the list must not be full. */
    void add(long from, long length) {
        memory.putLong(end, from);
        memory.putLong(end + LENGTH, length);
        end += PIECE_BYTES;
    }

    /** Pieces of the list. */
    int count() {
        return (end - begin) / PIECE_BYTES;
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
