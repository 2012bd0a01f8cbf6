package io.quoit.netty;

/**
 * What one channel has done, as its loop last noted it.
 *
 * @param receivedBytes bytes that were handed to the pipeline
 * @param receivedPieces in how many pieces
 * @param writtenBytes bytes that were given to the loop, or by a long flush to the kernel at once
 * @param writtenPieces in how many pieces
 * @param writes in how many goes: pieces of one go leave together
 * @param flushes sends that were not copied and have all gone; those that were copied are done at once
 * @param flushNanos nanoseconds that those took, from when the bytes were offered until the kernel had all of them
 * @param longestFlushNanos the longest of them
 * @param pendingBytes bytes that wait in the channel's outbound buffer, as Netty counts them
 */
public record QuoitChannelSnapshot(
        long receivedBytes,
        long receivedPieces,
        long writtenBytes,
        long writtenPieces,
        long writes,
        long flushes,
        long flushNanos,
        long longestFlushNanos,
        long pendingBytes) {}
