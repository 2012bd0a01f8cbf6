package io.quoit.netty;

/**
 * What one channel has done, as its loop last noted it.
 *
 * @param receivedBytes bytes that were handed to the pipeline
 * @param receivedPieces in how many pieces
 * @param writtenBytes bytes that were given to the loop
 * @param writtenPieces in how many pieces
 * @param writes in how many goes: pieces of one go leave together
 * @param pendingBytes bytes that wait in the channel's outbound buffer, as Netty counts them
 */
public record QuoitChannelSnapshot(
        long receivedBytes,
        long receivedPieces,
        long writtenBytes,
        long writtenPieces,
        long writes,
        long pendingBytes) {}
