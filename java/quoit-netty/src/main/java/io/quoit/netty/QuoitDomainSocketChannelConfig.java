package io.quoit.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelOption;
import io.netty.channel.MessageSizeEstimator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.DuplexChannelConfig;
import io.netty.channel.unix.DomainSocketChannelConfig;
import io.netty.channel.unix.DomainSocketReadMode;
import io.netty.channel.unix.UnixChannelOption;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/**
 * Options of a {@link QuoitDomainSocketChannel}. Descriptors cannot be received: only bytes. The water marks of the write buffer
 * are those of {@link QuoitSocketChannelConfig}.
 */
public final class QuoitDomainSocketChannelConfig extends AbstractQuoitStreamConfig
        implements DomainSocketChannelConfig, DuplexChannelConfig {
    private static final EnumSet<KernelOption> SUPPORTED =
            EnumSet.of(KernelOption.SEND_BUFFER, KernelOption.RECEIVE_BUFFER);

    QuoitDomainSocketChannelConfig(QuoitDomainSocketChannel channel) {
        super(channel);
    }

    @Override
    Set<KernelOption> supported() {
        return SUPPORTED;
    }

    @Override
    int family() {
        return Addresses.AF_UNIX;
    }

    @Override
    public QuoitDomainSocketChannelConfig setAllowHalfClosure(boolean allow) {
        allowHalfClosure(allow);
        return this;
    }

    @Override
    public Map<ChannelOption<?>, Object> getOptions() {
        return getOptions(super.getOptions(), UnixChannelOption.DOMAIN_SOCKET_READ_MODE);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T getOption(ChannelOption<T> option) {
        return option == UnixChannelOption.DOMAIN_SOCKET_READ_MODE ? (T) getReadMode() : super.getOption(option);
    }

    @Override
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        if (option == UnixChannelOption.DOMAIN_SOCKET_READ_MODE) {
            setReadMode((DomainSocketReadMode) value);
            return true;
        }
        return super.setOption(option, value);
    }

    @Override
    public DomainSocketReadMode getReadMode() {
        return DomainSocketReadMode.BYTES;
    }

    /**
     * {@inheritDoc}
     *
     * @throws UnsupportedOperationException for anything but {@link DomainSocketReadMode#BYTES}
     */
    @Override
    public QuoitDomainSocketChannelConfig setReadMode(DomainSocketReadMode mode) {
        if (mode != DomainSocketReadMode.BYTES) {
            throw new UnsupportedOperationException("Quoit's Unix sockets receive bytes, no descriptors");
        }
        return this;
    }

    @Override
    @Deprecated
    public QuoitDomainSocketChannelConfig setMaxMessagesPerRead(int maxMessagesPerRead) {
        super.setMaxMessagesPerRead(maxMessagesPerRead);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setWriteSpinCount(int writeSpinCount) {
        super.setWriteSpinCount(writeSpinCount);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setAllocator(ByteBufAllocator allocator) {
        super.setAllocator(allocator);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setAutoRead(boolean autoRead) {
        super.setAutoRead(autoRead);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setAutoClose(boolean autoClose) {
        super.setAutoClose(autoClose);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setMessageSizeEstimator(MessageSizeEstimator estimator) {
        super.setMessageSizeEstimator(estimator);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setWriteBufferWaterMark(WriteBufferWaterMark waterMark) {
        super.setWriteBufferWaterMark(waterMark);
        return this;
    }

    @Override
    public QuoitDomainSocketChannelConfig setConnectTimeoutMillis(int millis) {
        super.setConnectTimeoutMillis(millis);
        return this;
    }

    @Override
    @Deprecated
    public QuoitDomainSocketChannelConfig setWriteBufferHighWaterMark(int mark) {
        super.setWriteBufferHighWaterMark(mark);
        return this;
    }

    @Override
    @Deprecated
    public QuoitDomainSocketChannelConfig setWriteBufferLowWaterMark(int mark) {
        super.setWriteBufferLowWaterMark(mark);
        return this;
    }
}
