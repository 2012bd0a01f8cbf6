package io.quoit.netty;

import io.netty.util.internal.ObjectUtil;
import io.quoit.netty.Abi.Config;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Objects;
import java.util.Set;

/**
 * The limits and settings of the loops of one event loop group; every loop has them to itself. Immutable: each
 * {@code with} method returns a changed copy, and throws {@link IllegalArgumentException} for a value out of range.
 *
 * <table>
 * <caption>Settings and their defaults</caption>
 * <tr><th>setting</th><th>default</th></tr>
 * <tr><td>{@link #withEngine engine}</td><td>{@link QuoitEngine#AUTO}</td></tr>
 * <tr><td>{@link #withoutFeatures features not to use}</td><td>none</td></tr>
 * <tr><td>{@link #withConnections connections}</td><td>16,384</td></tr>
 * <tr><td>{@link #withDatagramSockets datagram sockets}</td><td>64</td></tr>
 * <tr><td>{@link #withReceivePool receive slots, bytes of one}</td><td>256, 64 KiB</td></tr>
 * <tr><td>{@link #withLeasesPerConnection slots that one connection may hold}</td><td>16</td></tr>
 * <tr><td>{@link #withOutboundWaterMarks native outbound water marks}</td><td>64 KiB, 256 KiB</td></tr>
 * <tr><td>{@link #withCopyThreshold bytes of a flush that are copied}</td><td>2 KiB</td></tr>
 * <tr><td>{@link #withQueues submission and completion queue}</td><td>512, 4,096 entries</td></tr>
 * <tr><td>{@link #withBufferRing slots that the kernel holds}</td><td>256</td></tr>
 * <tr><td>{@link #withCompletionsPerTurn completions per turn}</td><td>64</td></tr>
 * <tr><td>{@link #withSpinBudget spinning before a loop sleeps}</td><td>none</td></tr>
 * <tr><td>{@link #withCoalesceTime coalescing while a loop sleeps}</td><td>none</td></tr>
 * <tr><td>{@link #withKernelPolling kernel polling thread}</td><td>none</td></tr>
 * <tr><td>{@link #withZeroCopyThreshold zero-copy sends}</td><td>none</td></tr>
 * <tr><td>{@link #withCloseDeadline time of a graceful close}</td><td>10 s</td></tr>
 * <tr><td>{@link #withStallLimit time that a peer may take nothing while memory is short}</td><td>30 s</td></tr>
 * </table>
 */
public final class QuoitIoHandlerConfig {
    private static final QuoitIoHandlerConfig DEFAULT = new QuoitIoHandlerConfig(new Values());

    private static final int MAX_CONNECTIONS = 1 << 20;
    private static final int MAX_DATAGRAM_SOCKETS = 1024;
    private static final int MAX_SLOTS = 1 << 15;
    private static final int MAX_QUEUE = 1 << 15;
    private static final int MAX_COPY_THRESHOLD = 4 << 10;
    private static final long MAX_SPIN_NANOS = 1_000_000_000L;
    private static final long MIN_COALESCE_NANOS = 1_000L;
    private static final long MAX_COALESCE_NANOS = 100_000_000L;

    private static final class Values implements Cloneable {
        QuoitEngine engine = QuoitEngine.AUTO;
        Set<String> without = Set.of();
        int connections = 16_384;
        int datagramSockets = 64;
        // Not the core's 1,024 slots of 16 KiB: as many bytes, but a burst is one receive, as Netty's own transports read up to
        // 64 KiB at once. TCP acknowledges after each.
        int receiveSlots = 256;
        int receiveSlotSize = 64 << 10;
        int leasesPerConnection = 16;
        int lowWater = 64 << 10;
        int highWater = 256 << 10;
        int copyThreshold = 2 << 10;
        int submissionQueue = 512;
        int completionQueue = 4096;
        int bufferRing = 256;
        int completionsPerTurn = 64;
        int zeroCopyThreshold = -1;
        long spinNanos;
        long coalesceNanos;
        long kernelPollNanos = -1;
        long closeDeadlineNanos = 10_000_000_000L;
        long stallLimitNanos = 30_000_000_000L;

        Values copy() {
            try {
                return (Values) clone();
            } catch (CloneNotSupportedException impossible) {
                throw new IllegalStateException("Values is Cloneable", impossible);
            }
        }
    }

    private final Values values;

    private QuoitIoHandlerConfig(Values values) {
        this.values = values;
    }

    /**
     * The defaults.
     *
     * @return a configuration with the values of the table above
     */
    public static QuoitIoHandlerConfig defaults() {
        return DEFAULT;
    }

    /**
     * Sets the kernel interface.
     *
     * @param engine the engine; {@link QuoitEngine#AUTO} falls back to epoll and logs why
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withEngine(QuoitEngine engine) {
        Values changed = values.copy();
        changed.engine = Objects.requireNonNull(engine, "engine");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets features of io_uring that are not to be used though the kernel has them.
     *
     * @param names their names, as {@link Quoit#doctor()} lists them; an unknown one fails when a loop is made
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withoutFeatures(String... names) {
        Values changed = values.copy();
        changed.without = Set.of(names);
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how many connections a loop may have. One more is refused: an accepted one is closed, a connect fails.
     *
     * @param connections 1 to 1,048,576
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withConnections(int connections) {
        Values changed = values.copy();
        changed.connections = ObjectUtil.checkInRange(connections, 1, MAX_CONNECTIONS, "connections");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how many datagram sockets a loop may have. One more cannot be bound or connected.
     *
     * @param sockets 0 to 1,024
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withDatagramSockets(int sockets) {
        Values changed = values.copy();
        changed.datagramSockets = ObjectUtil.checkInRange(sockets, 0, MAX_DATAGRAM_SOCKETS, "sockets");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets the pool that data is received into, which bounds a loop's native memory for receiving. Buffers in pipelines
     * are slots of it; once half of the slots are held there, what is received is copied into buffers of the channel's
     * allocator.
     *
     * @param slots how many, 2 to 32,768
     * @param slotSize bytes of each, 64 to 16 MiB
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withReceivePool(int slots, int slotSize) {
        Values changed = values.copy();
        changed.receiveSlots = ObjectUtil.checkInRange(slots, 2, MAX_SLOTS, "slots");
        changed.receiveSlotSize = ObjectUtil.checkInRange(slotSize, 64, 16 << 20, "slotSize");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how many slots of the pool the buffers of one connection may hold: past half of them what it receives is
     * copied, so that a handler that collects a large message never waits for ever.
     *
     * @param leases 1 to 32,768
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withLeasesPerConnection(int leases) {
        Values changed = values.copy();
        changed.leasesPerConnection = ObjectUtil.checkInRange(leases, 1, MAX_SLOTS, "leases");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets the marks of a connection's native outbound queue: at the high one the channel gives it no more until it is
     * down to the low one. They come after those of {@code ChannelOption.WRITE_BUFFER_WATER_MARK}, which decide on
     * {@code isWritable}.
     *
     * @param low bytes, at most {@code high}
     * @param high bytes, at least 4 KiB
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withOutboundWaterMarks(int low, int high) {
        Values changed = values.copy();
        changed.highWater = ObjectUtil.checkInRange(high, 4 << 10, 1 << 30, "high");
        changed.lowWater = ObjectUtil.checkInRange(low, 0, high, "low");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets up to how many bytes a flush is copied into the loop's memory: its promises are then done, and its buffers
     * released, at once, before the kernel has taken the bytes. More than that is sent from the buffers' own memory, and
     * the promises are done when the kernel has it. A flush of small messages, which have at most a quarter of this each
     * on average, is copied up to eight times as many bytes, but not past the native high-water mark. That is also what a
     * channel may have copied in one run of its loop by several flushes; others wait for the next run.
     *
     * @param bytes 0 to 4,096; 0 copies nothing
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withCopyThreshold(int bytes) {
        Values changed = values.copy();
        changed.copyThreshold = ObjectUtil.checkInRange(bytes, 0, MAX_COPY_THRESHOLD, "bytes");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets the queues of the ring; epoll has none.
     *
     * @param submission entries, a power of two up to 32,768
     * @param completion entries, a power of two up to 32,768
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withQueues(int submission, int completion) {
        Values changed = values.copy();
        changed.submissionQueue = powerOfTwo(submission, "submission");
        changed.completionQueue = powerOfTwo(completion, "completion");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how many free slots of the pool the kernel holds to receive into; at most as many as there are.
     *
     * @param slots a power of two up to 32,768
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withBufferRing(int slots) {
        Values changed = values.copy();
        changed.bufferRing = powerOfTwo(slots, "slots");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets about how many completions one turn handles before tasks run.
     *
     * @param completions 1 to 65,536
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withCompletionsPerTurn(int completions) {
        Values changed = values.copy();
        changed.completionsPerTurn = ObjectUtil.checkInRange(completions, 1, 1 << 16, "completions");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Lets a loop that has nothing to do look for more again and again before it sleeps: a lower latency, for the price of
     * a processor as long as it looks. More than 0 takes the place of a {@link #withCoalesceTime coalesce time}.
     *
     * @param nanos for how long, up to a second; 0: it sleeps at once
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withSpinBudget(long nanos) {
        Values changed = values.copy();
        changed.spinNanos = ObjectUtil.checkInRange(nanos, 0, MAX_SPIN_NANOS, "nanos");
        if (nanos > 0) {
            changed.coalesceNanos = 0;
        }
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Lets a loop that sleeps go on to sleep for so long, from when it fell asleep, though something happens or a scheduled
     * task is due, unless as much happens as {@link #withCompletionsPerTurn a turn} handles: fewer turns with more in each,
     * for a latency of up to that time. This is the latency of everything: data, tasks of other threads, scheduled tasks.
     * The loop does so only where it saves processor time of the loop's thread, which it tries every few seconds.
     * More than 0 takes the place of a {@link #withSpinBudget spin budget}.
     *
     * @param nanos for how long, 1 &micro;s to 100 ms; 0: the first event ends a sleep
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withCoalesceTime(long nanos) {
        Values changed = values.copy();
        if (nanos != 0) {
            ObjectUtil.checkInRange(nanos, MIN_COALESCE_NANOS, MAX_COALESCE_NANOS, "nanos");
            changed.spinNanos = 0;
        }
        changed.coalesceNanos = nanos;
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Lets a kernel thread poll the submission queue ({@code IORING_SETUP_SQPOLL}): no system calls under load, for the
     * price of a processor.
     *
     * @param idleNanos after how long without work it sleeps; negative: no such thread
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withKernelPolling(long idleNanos) {
        Values changed = values.copy();
        changed.kernelPollNanos = idleNanos;
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets from how many bytes on a send is lent to the kernel without a copy ({@code IORING_OP_SENDMSG_ZC}). It turns
     * itself off on connections where the kernel copies all the same, as on loopback.
     *
     * @param bytes at least 1; negative: never
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withZeroCopyThreshold(int bytes) {
        if (bytes == 0) {
            throw new IllegalArgumentException("bytes: 0 (expected: at least 1, or negative for never)");
        }
        Values changed = values.copy();
        changed.zeroCopyThreshold = bytes;
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how long a closed connection, of which something is left to be sent, goes on with a peer that takes nothing, before it
     * is reset; to within as much again. Of what the kernel has all of, nothing is reset: after this time it is left to the
     * kernel, as by other transports. The channel itself is closed at once.
     *
     * @param nanos at least 0
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withCloseDeadline(long nanos) {
        Values changed = values.copy();
        changed.closeDeadlineNanos = ObjectUtil.checkPositiveOrZero(nanos, "nanos");
        return new QuoitIoHandlerConfig(changed);
    }

    /**
     * Sets how long the peer of a connection may take nothing of what waits to be sent to it while the loop's memory is
     * short: then the connection is reset, those that have been still for longest first, and no more than need be. Without
     * such a shortage nobody is closed for being slow.
     *
     * @param nanos at least 0, counted in seconds; {@code Long.MAX_VALUE}: nobody is closed
     * @return a changed copy
     */
    public QuoitIoHandlerConfig withStallLimit(long nanos) {
        Values changed = values.copy();
        changed.stallLimitNanos = ObjectUtil.checkPositiveOrZero(nanos, "nanos");
        return new QuoitIoHandlerConfig(changed);
    }

    private static int powerOfTwo(int value, String name) {
        ObjectUtil.checkInRange(value, 1, MAX_QUEUE, name);
        if (Integer.bitCount(value) != 1) {
            throw new IllegalArgumentException(name + ": " + value + " (expected: a power of two)");
        }
        return value;
    }

    /**
     * The kernel interface.
     *
     * @return the engine that is asked for
     */
    public QuoitEngine engine() {
        return values.engine;
    }

    int receiveSlots() {
        return values.receiveSlots;
    }

    int receiveSlotSize() {
        return values.receiveSlotSize;
    }

    /** Slots that pipelines may hold: the other half stays for receiving. */
    int receiveSlotsForApplication() {
        return values.receiveSlots / 2;
    }

    /** Slots that one connection's buffers may hold before what it receives is copied. */
    int leasesBeforeCopy() {
        return values.leasesPerConnection / 2;
    }

    int highWater() {
        return values.highWater;
    }

    int lowWater() {
        return values.lowWater;
    }

    long closeDeadlineNanos() {
        return values.closeDeadlineNanos;
    }

    long coalesceNanos() {
        return values.coalesceNanos;
    }

    int copyThreshold() {
        return values.copyThreshold;
    }

    /** As {@code quoit_config}. */
    ByteBuffer toNative(NativeLibrary library) {
        ByteBuffer config = ByteBuffer.allocateDirect(Config.STRUCT_SIZE).order(ByteOrder.nativeOrder());
        config.putInt(0, Config.STRUCT_SIZE);
        if (library.configDefault(library.address(config)) < 0) {
            throw new IllegalStateException("quoit_config_default: " + library.errorText());
        }
        config.putInt(
                Config.ENGINE,
                switch (values.engine) {
                    case AUTO -> Abi.ENGINE_AUTO;
                    case URING -> Abi.ENGINE_URING;
                    case EPOLL -> Abi.ENGINE_EPOLL;
                });
        if (!values.without.isEmpty()) {
            config.putLong(Config.WITHOUT, Doctor.bits(library, values.without));
        }
        if (values.spinNanos > 0) {
            config.putInt(Config.WAIT, Abi.WAIT_SPIN).putLong(Config.SPIN_NS, values.spinNanos);
        } else if (values.coalesceNanos > 0) {
            config.putInt(Config.WAIT, Abi.WAIT_COALESCE).putLong(Config.SPIN_NS, values.coalesceNanos);
        }
        config.putInt(Config.CONNECTIONS, values.connections)
                .putInt(Config.DATAGRAM_SOCKETS, values.datagramSockets)
                .putInt(Config.RECEIVE_SLOTS, values.receiveSlots)
                .putInt(Config.RECEIVE_SLOT_SIZE, values.receiveSlotSize)
                .putInt(Config.LEASES_PER_CONNECTION, values.leasesPerConnection)
                .putInt(Config.HIGH_WATER, values.highWater)
                .putInt(Config.LOW_WATER, values.lowWater)
                .putInt(Config.ZERO_COPY_THRESHOLD, values.zeroCopyThreshold < 0 ? Abi.UNSET : values.zeroCopyThreshold)
                .putInt(Config.SUBMISSION_QUEUE, values.submissionQueue)
                .putInt(Config.COMPLETION_QUEUE, values.completionQueue)
                .putInt(Config.BUFFER_RING, Math.min(values.bufferRing, Integer.highestOneBit(values.receiveSlots)))
                .putInt(Config.COMPLETIONS_PER_TURN, values.completionsPerTurn)
                .putLong(Config.KERNEL_POLL_NS, values.kernelPollNanos)
                .putLong(Config.CLOSE_DEADLINE_NS, values.closeDeadlineNanos)
                .putLong(Config.STALL_LIMIT_NS, values.stallLimitNanos);
        return config;
    }
}
