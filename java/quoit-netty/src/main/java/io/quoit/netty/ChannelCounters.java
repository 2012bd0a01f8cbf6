package io.quoit.netty;

/** What one channel has done; written by its loop, and read by any thread a moment later. */
final class ChannelCounters {
    private long receivedBytes;
    private long receivedPieces;
    private long writtenBytes;
    private long writtenPieces;
    private long writes;

    void received(int bytes) {
        receivedBytes += bytes;
        receivedPieces++;
    }

    void wrote(int bytes, int pieces) {
        writtenBytes += bytes;
        writtenPieces += pieces;
        writes++;
    }

    QuoitChannelSnapshot snapshot(long pendingBytes) {
        return new QuoitChannelSnapshot(
                receivedBytes, receivedPieces, writtenBytes, writtenPieces, writes, pendingBytes);
    }
}
