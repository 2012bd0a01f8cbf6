package io.quoit.netty;

import java.nio.ByteBuffer;

/**
 * What the kernel tells of a TCP connection: {@code TCP_INFO}, see {@code tcp(7)} and {@code struct tcp_info} in
 * {@code linux/tcp.h}. The names are those of Netty's {@code EpollTcpInfo}. Values of 32 bits are unsigned.
 *
 * @param state the connection's state, as {@code TCP_ESTABLISHED} is 1
 * @param caState the state of congestion avoidance
 * @param retransmits timeouts in a row without an acknowledgement
 * @param probes probes of a closed window that were not answered
 * @param backoff by how much the timeout has been backed off
 * @param options which of the options of RFC 7323 and the like are in use
 * @param sndWscale the window scale that the peer has announced
 * @param rcvWscale the window scale that this end has announced
 * @param rto the retransmission timeout, in microseconds
 * @param ato the timeout of delayed acknowledgements, in microseconds
 * @param sndMss the segment size of what is sent, in bytes
 * @param rcvMss the segment size of what is received, in bytes
 * @param unacked segments that were sent and not acknowledged
 * @param sacked segments that were acknowledged out of order
 * @param lost segments that are held to be lost
 * @param retrans segments that were sent again and not acknowledged
 * @param fackets not used by kernels since 4.15
 * @param lastDataSent the time since data was sent, in milliseconds
 * @param lastAckSent not kept by the kernel: 0
 * @param lastDataRecv the time since data was received, in milliseconds
 * @param lastAckRecv the time since an acknowledgement was received, in milliseconds
 * @param pmtu the path's MTU, in bytes
 * @param rcvSsthresh the threshold of the receive window, in bytes
 * @param rtt the smoothed time of a round trip, in microseconds
 * @param rttvar how much that varies, in microseconds
 * @param sndSsthresh the slow start threshold, in segments
 * @param sndCwnd the congestion window, in segments
 * @param advmss the segment size that was advertised, in bytes
 * @param reordering segments that may come out of order before one is held to be lost
 * @param rcvRtt the receiver's measure of a round trip, in microseconds
 * @param rcvSpace the receive queue's space, in bytes
 * @param totalRetrans segments that were sent again since the connection is there
 */
public record QuoitTcpInfo(
        int state,
        int caState,
        int retransmits,
        int probes,
        int backoff,
        int options,
        int sndWscale,
        int rcvWscale,
        long rto,
        long ato,
        long sndMss,
        long rcvMss,
        long unacked,
        long sacked,
        long lost,
        long retrans,
        long fackets,
        long lastDataSent,
        long lastAckSent,
        long lastDataRecv,
        long lastAckRecv,
        long pmtu,
        long rcvSsthresh,
        long rtt,
        long rttvar,
        long sndSsthresh,
        long sndCwnd,
        long advmss,
        long reordering,
        long rcvRtt,
        long rcvSpace,
        long totalRetrans) {
    /** Bytes of the structure as far as it is read here, which every kernel since 2.6 has. */
    static final int BYTES = 8 + 24 * Integer.BYTES;

    static QuoitTcpInfo read(ByteBuffer from) {
        int scales = from.get(6) & 0xff;
        return new QuoitTcpInfo(
                from.get(0) & 0xff,
                from.get(1) & 0xff,
                from.get(2) & 0xff,
                from.get(3) & 0xff,
                from.get(4) & 0xff,
                from.get(5) & 0xff,
                scales & 0xf,
                scales >> 4,
                value(from, 0),
                value(from, 1),
                value(from, 2),
                value(from, 3),
                value(from, 4),
                value(from, 5),
                value(from, 6),
                value(from, 7),
                value(from, 8),
                value(from, 9),
                value(from, 10),
                value(from, 11),
                value(from, 12),
                value(from, 13),
                value(from, 14),
                value(from, 15),
                value(from, 16),
                value(from, 17),
                value(from, 18),
                value(from, 19),
                value(from, 20),
                value(from, 21),
                value(from, 22),
                value(from, 23));
    }

    private static long value(ByteBuffer from, int index) {
        return Integer.toUnsignedLong(from.getInt(8 + index * Integer.BYTES));
    }
}
