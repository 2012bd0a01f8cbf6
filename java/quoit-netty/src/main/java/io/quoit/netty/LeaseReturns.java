package io.quoit.netty;

/** Gives leases back to the library, from any thread and also after their loop is gone. Belongs to one loop. */
final class LeaseReturns {
    private final Remote remote;
    private final CommandBatch commands;

    /** The loop's thread, as long as the loop takes commands. */
    private volatile Thread thread;

    LeaseReturns(Remote remote, CommandBatch commands) {
        this.remote = remote;
        this.commands = commands;
    }

    /** The calling thread is the loop's. */
    void start() {
        thread = Thread.currentThread();
    }

    /** From now on leases go back through the remote, which outlives the loop. */
    void stop() {
        thread = null;
    }

    /** Whether the calling thread is that of a loop that takes commands. */
    boolean isHere() {
        return Thread.currentThread() == thread;
    }

    void give(long lease) {
        if (isHere()) {
            commands.returnLease(lease);
        } else {
            remote.returnLease(lease);
        }
    }
}
