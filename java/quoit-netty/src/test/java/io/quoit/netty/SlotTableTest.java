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

    @Test
    void keepsNoMoreThanThereMayBe() {
        SlotTable table = new SlotTable(1);
        LeaseSlot first = new LeaseSlot(null, 64);
        table.add(first);
        table.add(new LeaseSlot(null, 128));
        assertSame(first, table.get(64));
        assertNull(table.get(128));
    }
}
