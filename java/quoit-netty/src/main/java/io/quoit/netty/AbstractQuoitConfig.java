package io.quoit.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultChannelConfig;
import io.netty.channel.RecvByteBufAllocator;
import java.nio.channels.ClosedChannelException;
import java.util.EnumMap;
import java.util.Map;
import java.util.Set;

/**
 * Options of a channel. Those of the kernel go to the socket if there is one; what is set before is kept and goes to it
 * when it is made. Any thread may set and get them.
 */
abstract class AbstractQuoitConfig extends DefaultChannelConfig {
    private static final int NO_DESCRIPTOR = -1;

    /** What was set while there was no socket; most channels are accepted ones, which have theirs from the beginning. */
    private Map<KernelOption, Integer> early = Map.of();
    /** What the socket that is being made has been given of that: any may be set once more meanwhile. */
    private Map<KernelOption, Integer> given = Map.of();
    private volatile boolean ownReceiveAllocator;
    private final boolean made;

    AbstractQuoitConfig(Channel channel) {
        super(channel);
        made = true;
    }

    /** The options of the kernel that the channel has. */
    abstract Set<KernelOption> supported();

    /** The channel's socket; negative if there is none now. */
    abstract int descriptor();

    /** The address family of a socket that is made to ask for a default. */
    abstract int family();

    final synchronized int get(KernelOption option) {
        int descriptor = descriptor();
        if (descriptor >= 0) {
            return Descriptors.get(descriptor, option.level, option.name);
        }
        checkOpen();
        Integer set = early.get(option);
        return set != null ? set : kernelDefault(option);
    }

    private int kernelDefault(KernelOption option) {
        if (option == KernelOption.NO_DELAY) {
            // Netty's own default on Linux, which connecting and accepting set.
            return 1;
        }
        int descriptor = NO_DESCRIPTOR;
        try {
            descriptor = Descriptors.stream(family());
            return Descriptors.get(descriptor, option.level, option.name);
        } catch (java.io.IOException failure) {
            throw new ChannelException(failure);
        } finally {
            if (descriptor >= 0) {
                Descriptors.close(descriptor);
            }
        }
    }

    /** A closed channel's socket has no options any more: Netty's own transports say so, too. */
    final void checkOpen() {
        if (!channel.isOpen()) {
            throw new ChannelException(new ClosedChannelException());
        }
    }

    final boolean flag(KernelOption option) {
        return get(option) != 0;
    }

    final synchronized void set(KernelOption option, int value) {
        int descriptor = descriptor();
        if (descriptor >= 0) {
            apply(descriptor, option, value);
            return;
        }
        checkOpen();
        if (early.isEmpty()) {
            early = new EnumMap<>(KernelOption.class);
        }
        early.put(option, value);
    }

    final void set(KernelOption option, boolean value) {
        set(option, value ? 1 : 0);
    }

    /** What was set, or a default where nothing was: for whoever makes the socket and gives it that. */
    final synchronized int give(KernelOption option, int otherwise) {
        int value = early.getOrDefault(option, otherwise);
        given(option, value);
        return value;
    }

    private void given(KernelOption option, int value) {
        if (given.isEmpty()) {
            given = new EnumMap<>(KernelOption.class);
        }
        given.put(option, value);
    }

    /** Sets on a new socket what was asked for before. */
    final synchronized void applyFirst(int descriptor) {
        given = Map.of();
        apply(descriptor);
    }

    private void apply(int descriptor) {
        early.forEach((option, value) -> {
            if (!value.equals(given.get(option))) {
                apply(descriptor, option, value);
                given(option, value);
            }
        });
    }

    /**
     * Sets what the new socket has not been given yet, and lets {@link #descriptor} tell of it: nothing is set between the two
     * and lost.
     */
    final synchronized void applyRest(int descriptor, Runnable publish) {
        apply(descriptor);
        given = Map.of();
        publish.run();
    }

    private static void apply(int descriptor, KernelOption option, int value) {
        Descriptors.set(descriptor, option.level, option.name, value);
        if (option == KernelOption.TYPE_OF_SERVICE) {
            try {
                Descriptors.set(descriptor, Descriptors.IPPROTO_IPV6, Descriptors.IPV6_TCLASS, value);
            } catch (ChannelException ipv4Only) {
                // A socket of IPv4 has no traffic class.
                return;
            }
        }
    }

    /**
     * Whether the user named an allocator of receive buffers.
     *
     * @return true if so
     */
    public final boolean hasOwnReceiveAllocator() {
        return ownReceiveAllocator;
    }

    @Override
    public DefaultChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        // The constructor of the superclass sets the default.
        ownReceiveAllocator = made;
        return this;
    }

    @Override
    protected final void autoReadCleared() {
        ((AbstractQuoitChannel) channel).clearReadLater();
    }

    @Override
    public Map<ChannelOption<?>, Object> getOptions() {
        ChannelOption<?>[] options =
                supported().stream().map(option -> option.option).toArray(ChannelOption<?>[]::new);
        return getOptions(super.getOptions(), options);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T getOption(ChannelOption<T> option) {
        KernelOption kernel = KernelOption.of(option);
        if (kernel != null && supported().contains(kernel)) {
            return (T) kernel.fromKernel(get(kernel));
        }
        return super.getOption(option);
    }

    @Override
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        KernelOption kernel = KernelOption.of(option);
        if (kernel != null && supported().contains(kernel)) {
            set(kernel, kernel.toKernel(value));
            return true;
        }
        return UnsupportedOptions.isOff(option, value) || super.setOption(option, value);
    }
}
