package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

final class SlotTableTest {
    @Test
    void findsEachSlotByItsAddressAndNoOther() {
        int slots = 1000;
        for (long stride : new long[] {64, 16_384, 16_448, 1L << 24}) {
            SlotTable table = new SlotTable(slots);
            List<LeaseSlot> all = new ArrayList<>();
            for (int number = 0; number < slots; number++) {
                LeaseSlot slot = new LeaseSlot(null, 0x7f00_0000_0000L + number * stride);
                assertNull(table.get(slot.address));
                table.add(slot);
                all.add(slot);
            }
            for (LeaseSlot slot : all) {
                assertSame(slot, table.get(slot.address));
                assertNull(table.get(slot.address + 1));
            }
        }
    }

    /** Copies, which lie anywhere, must not keep out the slots, which come again and again. */
    @Test
    void beginsAnewWhenItIsFull() {
        SlotTable table = new SlotTable(100);
        for (int copy = 0; copy < 1000; copy++) {
            table.add(new LeaseSlot(null, 0x5500_0000_0000L + 2064L * copy));
        }
        LeaseSlot slot = new LeaseSlot(null, 64);
        table.add(slot);
        assertSame(slot, table.get(64));
        assertNull(table.get(0x5500_0000_0000L));
    }
}
