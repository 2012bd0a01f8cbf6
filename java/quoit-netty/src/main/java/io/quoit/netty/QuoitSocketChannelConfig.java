package io.quoit.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.MessageSizeEstimator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.SocketChannelConfig;
import java.util.EnumSet;
import java.util.Set;

/**
 * Options of a {@link QuoitSocketChannel}: those of {@link SocketChannelConfig}, and of {@link QuoitChannelOption}.
 * {@code SO_LINGER} is kept by the channel and never set on the socket: 0 resets the connection when it is closed, more is
 * how long what is left may take to be sent, in the background. A {@code RECVBUF_ALLOCATOR} makes the channel copy what it
 * receives into that allocator's buffers. The water marks of the write buffer are 60 and 64 KiB by default; who sets one of
 * them has Netty's default, 32 or 64 KiB, for the other.
 */
public final class QuoitSocketChannelConfig extends AbstractQuoitStreamConfig implements SocketChannelConfig {
    private static final EnumSet<KernelOption> SUPPORTED = EnumSet.complementOf(
            EnumSet.of(KernelOption.DEFER_ACCEPT, KernelOption.FAST_OPEN, KernelOption.BROADCAST));

    QuoitSocketChannelConfig(QuoitSocketChannel channel) {
        super(channel);
    }

    @Override
    Set<KernelOption> supported() {
        return SUPPORTED;
    }

    @Override
    int family() {
        return Addresses.AF_INET;
    }

    @Override
    public boolean isTcpNoDelay() {
        return flag(KernelOption.NO_DELAY);
    }

    @Override
    public QuoitSocketChannelConfig setTcpNoDelay(boolean noDelay) {
        set(KernelOption.NO_DELAY, noDelay);
        return this;
    }

    @Override
    public int getSoLinger() {
        return linger();
    }

    @Override
    public QuoitSocketChannelConfig setSoLinger(int seconds) {
        linger(seconds);
        return this;
    }

    @Override
    public int getSendBufferSize() {
        return get(KernelOption.SEND_BUFFER);
    }

    @Override
    public QuoitSocketChannelConfig setSendBufferSize(int bytes) {
        set(KernelOption.SEND_BUFFER, bytes);
        return this;
    }

    @Override
    public int getReceiveBufferSize() {
        return get(KernelOption.RECEIVE_BUFFER);
    }

    @Override
    public QuoitSocketChannelConfig setReceiveBufferSize(int bytes) {
        set(KernelOption.RECEIVE_BUFFER, bytes);
        return this;
    }

    @Override
    public boolean isKeepAlive() {
        return flag(KernelOption.KEEPALIVE);
    }

    @Override
    public QuoitSocketChannelConfig setKeepAlive(boolean keepAlive) {
        set(KernelOption.KEEPALIVE, keepAlive);
        return this;
    }

    @Override
    public int getTrafficClass() {
        return get(KernelOption.TYPE_OF_SERVICE);
    }

    @Override
    public QuoitSocketChannelConfig setTrafficClass(int trafficClass) {
        set(KernelOption.TYPE_OF_SERVICE, trafficClass);
        return this;
    }

    @Override
    public boolean isReuseAddress() {
        return flag(KernelOption.REUSE_ADDRESS);
    }

    @Override
    public QuoitSocketChannelConfig setReuseAddress(boolean reuse) {
        set(KernelOption.REUSE_ADDRESS, reuse);
        return this;
    }

    /** Does nothing: the kernel has no such preferences. */
    @Override
    public QuoitSocketChannelConfig setPerformancePreferences(int connectionTime, int latency, int bandwidth) {
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setAllowHalfClosure(boolean allow) {
        allowHalfClosure(allow);
        return this;
    }

    @Override
    @Deprecated
    public QuoitSocketChannelConfig setMaxMessagesPerRead(int maxMessagesPerRead) {
        super.setMaxMessagesPerRead(maxMessagesPerRead);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setWriteSpinCount(int writeSpinCount) {
        super.setWriteSpinCount(writeSpinCount);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setAllocator(ByteBufAllocator allocator) {
        super.setAllocator(allocator);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setAutoRead(boolean autoRead) {
        super.setAutoRead(autoRead);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setAutoClose(boolean autoClose) {
        super.setAutoClose(autoClose);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setMessageSizeEstimator(MessageSizeEstimator estimator) {
        super.setMessageSizeEstimator(estimator);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setWriteBufferWaterMark(WriteBufferWaterMark waterMark) {
        super.setWriteBufferWaterMark(waterMark);
        return this;
    }

    @Override
    public QuoitSocketChannelConfig setConnectTimeoutMillis(int millis) {
        super.setConnectTimeoutMillis(millis);
        return this;
    }

    @Override
    @Deprecated
    public QuoitSocketChannelConfig setWriteBufferHighWaterMark(int mark) {
        super.setWriteBufferHighWaterMark(mark);
        return this;
    }

    @Override
    @Deprecated
    public QuoitSocketChannelConfig setWriteBufferLowWaterMark(int mark) {
        super.setWriteBufferLowWaterMark(mark);
        return this;
    }
}
