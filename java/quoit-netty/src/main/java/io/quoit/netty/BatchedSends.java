package io.quoit.netty;

import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.util.ArrayList;

/** The channels of a loop whose sends the library may still refuse, and what became of them. The loop's thread only. */
final class BatchedSends {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(BatchedSends.class);

    private final CommandBatch commands;
    private final OutboundWalk walk;

    /** Those of batches that were taken, then those of the present batch. */
    private final ArrayList<Outbound> channels = new ArrayList<>();

    private int taken;
    /** Channels whose sends are refused for good, which end when all events of this run were reported. */
    private final ArrayList<Outbound> breaking = new ArrayList<>();
    /** So that a request makes no object; no more than there were channels here at one time. */
    private final ArrayList<BatchedSend> idle = new ArrayList<>();

    BatchedSends(CommandBatch commands, OutboundWalk walk) {
        this.commands = commands;
        this.walk = walk;
    }

    BatchedSend take() {
        return idle.isEmpty() ? new BatchedSend(commands, walk) : idle.remove(idle.size() - 1);
    }

    void giveBack(BatchedSend send) {
        send.clear();
        idle.add(send);
    }

    /** Asks for {@link Outbound#batchTaken()} after the turn that takes the present batch. */
    void add(Outbound channel) {
        channels.add(channel);
    }

    /** Asks for {@link Outbound#toldAll()} when all events of this run have been reported. */
    void breaks(Outbound channel) {
        breaking.add(channel);
    }

    /** The library takes the present batch. */
    void taken() {
        while (taken < channels.size()) {
            channels.get(taken++).taken();
        }
    }

    boolean anyTaken() {
        return taken > 0;
    }

    /** The library has told all that it refused of the batches that it has taken. */
    void toldAll() {
        int told = taken;
        taken = 0;
        for (int channel = 0; channel < told; channel++) {
            try {
                channels.get(channel).batchTaken();
            } catch (Throwable failure) {
                LOGGER.warn("Quoit: a channel failed when its sends were followed up", failure);
            }
        }
        // Those that were added meanwhile belong to the next turn. Moved here, as a part list would be an object.
        int left = channels.size() - told;
        for (int channel = 0; channel < left; channel++) {
            channels.set(channel, channels.get(told + channel));
        }
        for (int channel = 0; channel < told; channel++) {
            channels.remove(channels.size() - 1);
        }
    }

    /** All events of this run have been reported. */
    void endOfRun() {
        for (int channel = 0; channel < breaking.size(); channel++) {
            try {
                breaking.get(channel).toldAll();
            } catch (Throwable failure) {
                LOGGER.warn("Quoit: a channel failed when its sends were refused", failure);
            }
        }
        breaking.clear();
    }
}
