package io.quoit.netty;

import io.netty.channel.ChannelConfig;

/** What the transport itself asks of the configuration of its stream channels. */
interface QuoitStreamConfig extends ChannelConfig {
    boolean isAllowHalfClosure();

    /** SO_LINGER in seconds; negative: not set. */
    int linger();

    /** Bytes that may wait to be sent before a write is refused; 0: no limit. */
    long pendingWriteLimit();

    /**
     * Whether the user named an allocator of receive buffers.
     *
     * @return true if so
     */
    boolean hasOwnReceiveAllocator();
}
