package io.quoit.netty;

import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.util.collection.LongObjectHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Hands received memory to pipelines as buffers, and takes it back from any thread. Belongs to one loop. */
final class LeasePool {
    private final NativeLibrary library;
    private final Remote remote;
    private final CommandBatch commands;
    private final int slots;
    private final int slotSize;
    private final int limit;
    private final LongObjectHashMap<LeaseByteBuf.Slot> known;

    /** The loop's thread, as long as the loop takes commands. */
    private volatile Thread thread;

    private long handedOut;
    private long returnedHere;
    private long copied;
    private final AtomicLong returnedElsewhere = new AtomicLong();

    LeasePool(NativeLibrary library, Remote remote, CommandBatch commands, QuoitIoHandlerConfig config) {
        this.library = library;
        this.remote = remote;
        this.commands = commands;
        this.slots = config.receiveSlots();
        this.slotSize = config.receiveSlotSize();
        this.limit = config.receiveSlotsForApplication();
        this.known = new LongObjectHashMap<>(Math.min(slots, 1024));
    }

    void start() {
        thread = Thread.currentThread();
    }

    /** From now on leases go back through the remote, which outlives the loop. */
    void stop() {
        thread = null;
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
    ByteBuf take(long address, int length, long lease, Inbound holder, ByteBufAllocator allocator) {
        LeaseByteBuf.Slot slot = known.get(address);
        if (slot == null) {
            slot = new LeaseByteBuf.Slot(library.view(address, slotSize), address);
            // Slots have fixed places, so there are no more than that many.
            if (known.size() < slots) {
                known.put(address, slot);
            }
        }
        if (outstanding() >= limit || holder.holdsTooMuch()) {
            copied++;
            ByteBuf copy = allocator.directBuffer(length, length);
            copy.writeBytes(slot.view.duplicate().limit(length));
            commands.returnLease(lease);
            return copy;
        }
        LeaseByteBuf buffer = slot.getAndSet(null);
        if (buffer == null) {
            buffer = new LeaseByteBuf(this, slot, allocator);
        }
        handedOut++;
        holder.handedOut();
        return LeakAware.wrap(buffer.open(lease, length, holder));
    }

    /** Gives a lease back unseen. */
    void discard(long lease) {
        commands.returnLease(lease);
    }

    void release(long lease, Inbound holder) {
        if (Thread.currentThread() == thread) {
            returnedHere++;
            holder.returnedHere();
            commands.returnLease(lease);
        } else {
            returnedElsewhere.getAndIncrement();
            holder.returnedElsewhere();
            remote.returnLease(lease);
        }
    }

    /** Opens what Netty keeps for allocators: the leak detector. */
    private abstract static class LeakAware extends AbstractByteBufAllocator {
        static ByteBuf wrap(ByteBuf buffer) {
            return toLeakAwareBuffer(buffer);
        }
    }
}
