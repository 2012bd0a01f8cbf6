package io.quoit.netty;

import java.util.Arrays;

/**
 * The slots of a pool by their addresses. Those differ in a few bits in the middle, which a table that takes an address's
 * lowest bits for its place cannot tell apart: here a multiplication mixes them first (Knuth, The Art of Computer
 * Programming, volume 3, 6.4). Half of the table stays empty, and nothing is removed by itself. The loop's thread only.
 *
 * <p>The library's own copies of received bytes, which it makes while much is held, lie anywhere and never in the same places
 * for long. They would fill the table for good, and keep the slots out: so it begins anew when it is full.
 */
final class SlotTable {
    private static final int FIRST_CAPACITY = 64;

    /** 2<sup>64</sup> divided by the golden ratio. */
    private static final long MIXER = 0x9e37_79b9_7f4a_7c15L;

    private final int most;
    private LeaseSlot[] table = new LeaseSlot[2 * FIRST_CAPACITY];
    private int shift = Long.SIZE - Integer.numberOfTrailingZeros(table.length);
    private int size;

    /** For a pool of so many slots. */
    SlotTable(int most) {
        this.most = most;
    }

    /** The slot that begins at an address, or null. */
    LeaseSlot get(long address) {
        LeaseSlot[] all = table;
        for (int at = place(address); ; at = at + 1 & all.length - 1) {
            LeaseSlot slot = all[at];
            if (slot == null || slot.address == address) {
                return slot;
            }
        }
    }

    /** Adds a slot that is not in the table. */
    void add(LeaseSlot slot) {
        if (size == most) {
            Arrays.fill(table, null);
            size = 0;
        }
        if (2 * size == table.length) {
            grow();
        }
        put(slot);
        size++;
    }

    private void put(LeaseSlot slot) {
        int at = place(slot.address);
        while (table[at] != null) {
            at = at + 1 & table.length - 1;
        }
        table[at] = slot;
    }

    private void grow() {
        LeaseSlot[] smaller = table;
        table = new LeaseSlot[2 * smaller.length];
        shift--;
        for (LeaseSlot slot : smaller) {
            if (slot != null) {
                put(slot);
            }
        }
    }

    private int place(long address) {
        return (int) (address * MIXER >>> shift);
    }
}
