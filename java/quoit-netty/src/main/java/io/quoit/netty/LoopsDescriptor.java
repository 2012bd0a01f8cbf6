package io.quoit.netty;

import io.netty.channel.unix.FileDescriptor;

/** A descriptor to look at: it is closed by its channel. */
final class LoopsDescriptor extends FileDescriptor {
    private LoopsDescriptor(int descriptor) {
        super(descriptor);
    }

    /**
     * The descriptor with a number.
     *
     * @throws IllegalStateException for a negative one: the channel has none now
     */
    static LoopsDescriptor of(int descriptor) {
        if (descriptor < 0) {
            throw new IllegalStateException("the channel has no socket: it is not connected or bound yet, or closed");
        }
        return new LoopsDescriptor(descriptor);
    }

    @Override
    public void close() {
        throw new UnsupportedOperationException("the descriptor belongs to its channel: close that");
    }
}
