package io.quoit.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.MessageSizeEstimator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.ServerSocketChannelConfig;
import io.netty.util.NetUtil;
import io.netty.util.internal.ObjectUtil;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/** Options of listening channels: those of {@link ServerSocketChannelConfig}, and of {@link QuoitChannelOption}. */
public final class QuoitServerSocketChannelConfig extends AbstractQuoitConfig implements ServerSocketChannelConfig {
    private static final EnumSet<KernelOption> TCP = EnumSet.of(
            KernelOption.SEND_BUFFER,
            KernelOption.RECEIVE_BUFFER,
            KernelOption.REUSE_ADDRESS,
            KernelOption.REUSE_PORT,
            KernelOption.FREE_BIND,
            KernelOption.TRANSPARENT,
            KernelOption.DEFER_ACCEPT,
            KernelOption.FAST_OPEN);
    private static final EnumSet<KernelOption> UNIX =
            EnumSet.of(KernelOption.SEND_BUFFER, KernelOption.RECEIVE_BUFFER, KernelOption.REUSE_ADDRESS);

    private final AbstractQuoitServerChannel channel;
    private final boolean unix;
    private volatile int backlog = NetUtil.SOMAXCONN;

    QuoitServerSocketChannelConfig(AbstractQuoitServerChannel channel, boolean unix) {
        super(channel);
        this.channel = channel;
        this.unix = unix;
        if (!unix) {
            set(KernelOption.REUSE_ADDRESS, true);
        }
    }

    @Override
    Set<KernelOption> supported() {
        return unix ? UNIX : TCP;
    }

    @Override
    int descriptor() {
        // The superclass asks before this object is complete.
        return channel == null ? -1 : channel.descriptor();
    }

    @Override
    int family() {
        return unix ? Addresses.AF_UNIX : Addresses.AF_INET;
    }

    @Override
    public int getBacklog() {
        return backlog;
    }

    @Override
    public QuoitServerSocketChannelConfig setBacklog(int connections) {
        backlog = ObjectUtil.checkPositiveOrZero(connections, "backlog");
        return this;
    }

    @Override
    public boolean isReuseAddress() {
        return flag(KernelOption.REUSE_ADDRESS);
    }

    @Override
    public QuoitServerSocketChannelConfig setReuseAddress(boolean reuse) {
        set(KernelOption.REUSE_ADDRESS, reuse);
        return this;
    }

    @Override
    public int getReceiveBufferSize() {
        return get(KernelOption.RECEIVE_BUFFER);
    }

    @Override
    public QuoitServerSocketChannelConfig setReceiveBufferSize(int bytes) {
        set(KernelOption.RECEIVE_BUFFER, bytes);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setPerformancePreferences(int connectionTime, int latency, int bandwidth) {
        return this;
    }

    @Override
    public Map<ChannelOption<?>, Object> getOptions() {
        return getOptions(super.getOptions(), ChannelOption.SO_BACKLOG);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T getOption(ChannelOption<T> option) {
        return option == ChannelOption.SO_BACKLOG ? (T) Integer.valueOf(backlog) : super.getOption(option);
    }

    @Override
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        if (option == ChannelOption.SO_BACKLOG) {
            setBacklog((Integer) value);
            return true;
        }
        return super.setOption(option, value);
    }

    @Override
    @Deprecated
    public QuoitServerSocketChannelConfig setMaxMessagesPerRead(int maxMessagesPerRead) {
        super.setMaxMessagesPerRead(maxMessagesPerRead);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setWriteSpinCount(int writeSpinCount) {
        super.setWriteSpinCount(writeSpinCount);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setAllocator(ByteBufAllocator allocator) {
        super.setAllocator(allocator);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setAutoRead(boolean autoRead) {
        super.setAutoRead(autoRead);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setAutoClose(boolean autoClose) {
        super.setAutoClose(autoClose);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setMessageSizeEstimator(MessageSizeEstimator estimator) {
        super.setMessageSizeEstimator(estimator);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setWriteBufferWaterMark(WriteBufferWaterMark waterMark) {
        super.setWriteBufferWaterMark(waterMark);
        return this;
    }

    @Override
    public QuoitServerSocketChannelConfig setConnectTimeoutMillis(int millis) {
        super.setConnectTimeoutMillis(millis);
        return this;
    }

    @Override
    @Deprecated
    public QuoitServerSocketChannelConfig setWriteBufferHighWaterMark(int mark) {
        super.setWriteBufferHighWaterMark(mark);
        return this;
    }

    @Override
    @Deprecated
    public QuoitServerSocketChannelConfig setWriteBufferLowWaterMark(int mark) {
        super.setWriteBufferLowWaterMark(mark);
        return this;
    }
}
