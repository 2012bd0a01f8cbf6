package io.quoit.netty;

import io.netty.channel.ChannelConfig;
import io.netty.channel.ChannelOption;
import io.netty.channel.WriteBufferWaterMark;
import java.util.Map;

/** Options of a connected channel. */
abstract class AbstractQuoitStreamConfig extends AbstractQuoitConfig implements QuoitStreamConfig {
    private static final int NOT_SET = -1;

    /**
     * The water marks until some are set. The high one is Netty's, the low one is near it, where Netty's is the half: all that
     * one send has lent leaves the queue in one run, so a handler that was told at the half would write one half while the
     * other, which has gone, is still counted, and every send would be half as long as the high mark allows. Told 4 KiB
     * below it, the handler fills the queue again as it empties, in small steps, each in the memory that was just freed.
     */
    private static final WriteBufferWaterMark WATER_MARKS = new WriteBufferWaterMark(60 << 10, 64 << 10);

    private volatile boolean allowHalfClosure;
    private volatile int linger = NOT_SET;
    private volatile long pendingWriteLimit;

    AbstractQuoitStreamConfig(AbstractQuoitStreamChannel channel) {
        super(channel);
        setWriteBufferWaterMark(WATER_MARKS);
    }

    /** Who sets but one of the marks has Netty's default for the other, so that what is right elsewhere is right here. */
    @Override
    @Deprecated
    public ChannelConfig setWriteBufferHighWaterMark(int high) {
        if (getWriteBufferWaterMark() == WATER_MARKS) {
            setWriteBufferWaterMark(WriteBufferWaterMark.DEFAULT);
        }
        return super.setWriteBufferHighWaterMark(high);
    }

    @Override
    final int descriptor() {
        return ((AbstractQuoitStreamChannel) channel).descriptor();
    }

    @Override
    public boolean isAllowHalfClosure() {
        return allowHalfClosure;
    }

    final void allowHalfClosure(boolean allow) {
        allowHalfClosure = allow;
    }

    @Override
    public final int linger() {
        return linger;
    }

    final void linger(int seconds) {
        linger = seconds;
    }

    @Override
    public final long pendingWriteLimit() {
        return pendingWriteLimit;
    }

    @Override
    public Map<ChannelOption<?>, Object> getOptions() {
        return getOptions(
                super.getOptions(),
                ChannelOption.ALLOW_HALF_CLOSURE,
                ChannelOption.SO_LINGER,
                QuoitChannelOption.PENDING_WRITE_LIMIT);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T getOption(ChannelOption<T> option) {
        if (option == ChannelOption.ALLOW_HALF_CLOSURE) {
            return (T) Boolean.valueOf(allowHalfClosure);
        }
        if (option == ChannelOption.SO_LINGER) {
            checkOpen();
            return (T) Integer.valueOf(linger);
        }
        if (option == QuoitChannelOption.PENDING_WRITE_LIMIT) {
            return (T) Long.valueOf(pendingWriteLimit);
        }
        return super.getOption(option);
    }

    @Override
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        if (option == ChannelOption.ALLOW_HALF_CLOSURE) {
            allowHalfClosure = (Boolean) value;
        } else if (option == ChannelOption.SO_LINGER) {
            checkOpen();
            linger = (Integer) value;
        } else if (option == QuoitChannelOption.PENDING_WRITE_LIMIT) {
            pendingWriteLimit = PendingWritesException.limit((Long) value);
        } else {
            return super.setOption(option, value);
        }
        return true;
    }
}
