package io.quoit.netty;

import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Hands received memory to pipelines as buffers, and takes it back from any thread: that of a loop's connections, or of one
 * datagram socket.
 */
final class LeasePool {
    private final NativeLibrary library;
    private final LeaseReturns returns;
    private final int slotSize;
    private final int limit;
    private final int limitOfOne;
    private final SlotTable known;

    private long handedOut;
    private long returnedHere;
    private long copied;
    private final AtomicLong returnedElsewhere = new AtomicLong();

    /**
     * Of {@code slots} slots with {@code slotSize} bytes each. Bytes are copied from {@code limit} slots on that are out, and
     * those of a holder from {@code limitOfOne} slots on that it holds.
     */
    LeasePool(NativeLibrary library, LeaseReturns returns, int slots, int slotSize, int limit, int limitOfOne) {
        this.library = library;
        this.returns = returns;
        this.slotSize = slotSize;
        this.limit = limit;
        this.limitOfOne = limitOfOne;
        this.known = new SlotTable(slots);
    }

    /** Slots that pipelines hold. */
    long outstanding() {
        return handedOut - returnedHere - returnedElsewhere.get();
    }

    /** Pieces that were copied since the pool ran low, or since their connection held too much. */
    long copied() {
        return copied;
    }

    /** The bytes of an event as a buffer: over the slot itself, or a copy where too many slots are out. */
    ByteBuf take(long address, int length, long lease, LeaseHolder holder, ByteBufAllocator allocator) {
        LeaseSlot slot = known.get(address);
        if (slot == null) {
            slot = new LeaseSlot(library.view(address, slotSize), address);
            known.add(slot);
        }
        if (outstanding() >= limit || holder.slotsHeld() >= limitOfOne) {
            copied++;
            try {
                ByteBuf copy = allocator.directBuffer(length);
                return copy.writeBytes(slot.view.duplicate().limit(length));
            } finally {
                returns.give(lease);
            }
        }
        handedOut++;
        holder.handedOut();
        return LeakAware.wrap(slot.open(this, allocator, lease, length, holder));
    }

    /** Gives a lease back unseen. */
    void discard(long lease) {
        returns.give(lease);
    }

    void release(long lease, LeaseHolder holder) {
        if (returns.isHere()) {
            returnedHere++;
            holder.returnedHere();
        } else {
            // Before the lease: whoever sees the slot again sees that it came back.
            returnedElsewhere.getAndIncrement();
            holder.returnedElsewhere();
        }
        returns.give(lease);
    }

    /** Opens what Netty keeps for allocators: the leak detector. */
    private abstract static class LeakAware extends AbstractByteBufAllocator {
        static ByteBuf wrap(ByteBuf buffer) {
            return toLeakAwareBuffer(buffer);
        }
    }
}
