package io.quoit.netty;

/** What one channel has done; written by its loop, and read by any thread a moment later. */
final class ChannelCounters {
    /** Of a channel that has done nothing yet. */
    static final ChannelCounters NONE = new ChannelCounters();

    private long receivedBytes;
    private long receivedPieces;
    private long writtenBytes;
    private long writtenPieces;
    private long writes;
    private long flushes;
    private long flushNanos;
    private long longestFlushNanos;

    void received(int bytes) {
        receivedBytes += bytes;
        receivedPieces++;
    }

    void wrote(int bytes, int pieces) {
        writtenBytes += bytes;
        writtenPieces += pieces;
        writes++;
    }

    void flushed(long nanos) {
        flushes++;
        flushNanos += nanos;
        longestFlushNanos = Math.max(longestFlushNanos, nanos);
    }

    QuoitChannelSnapshot snapshot(long pendingBytes) {
        return new QuoitChannelSnapshot(
                receivedBytes,
                receivedPieces,
                writtenBytes,
                writtenPieces,
                writes,
                flushes,
                flushNanos,
                longestFlushNanos,
                pendingBytes);
    }
}
