package io.quoit.netty;

import java.util.BitSet;

/** The numbers that tell a process's loops apart in their ids. */
final class LoopNumbers {
    private static final int MOST = 4096;
    private static final BitSet TAKEN = new BitSet();

    private LoopNumbers() {}

    static synchronized int take() {
        int number = TAKEN.nextClearBit(0);
        if (number >= MOST) {
            throw new IllegalStateException("there are " + MOST + " loops in this process already");
        }
        TAKEN.set(number);
        return number;
    }

    static synchronized void give(int number) {
        TAKEN.clear(number);
    }
}
