package io.quoit.netty;

import io.netty.channel.unix.FileDescriptor;

/** A descriptor to look at: it is closed by its channel. */
final class LoopsDescriptor extends FileDescriptor {
    LoopsDescriptor(int descriptor) {
        super(Math.max(0, descriptor));
    }

    @Override
    public void close() {
        throw new UnsupportedOperationException("the descriptor belongs to its channel: close that");
    }
}
