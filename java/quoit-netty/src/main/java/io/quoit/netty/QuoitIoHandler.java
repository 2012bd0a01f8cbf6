package io.quoit.netty;

import io.netty.channel.IoHandle;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.IoOps;
import io.netty.channel.IoRegistration;
import io.netty.util.collection.LongObjectHashMap;
import io.netty.util.concurrent.SingleThreadEventExecutor;
import io.netty.util.concurrent.ThreadAwareExecutor;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import io.quoit.netty.Abi.Event;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;

/**
 * Quoit as the I/O of an event loop: {@code new MultiThreadIoEventLoopGroup(QuoitIoHandler.newFactory())}. Each event
 * loop has a native loop of its own, which makes one call of native code a run: commands in, events out.
 *
 * <p>The native loop is made where the event loop is, so that failures are thrown there, or {@link QuoitEngine#AUTO} falls
 * back to epoll there. It is bound to the event loop's thread when that starts; that must not be a virtual thread.
 */
public final class QuoitIoHandler implements IoHandler {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(QuoitIoHandler.class);

    private static final int EVENTS = 1024;
    /** The kind of an event that was told before its turn. */
    private static final short TOLD = 0;
    private static final int STAGING_BYTES = 1 << 20;
    private static final int FIRST_CONNECTIONS = 64;
    /**
     * Netty's maps stay half empty by default, which takes more memory per idle connection. An id hashes to its slot and its
     * generation, exclusive-or: until slots are used again none collide.
     */
    private static final float CONNECTIONS_LOAD = 0.8f;

    /** Tokens of connects and attaches; those of sends are below, or {@link Outbound#COPY_TOKEN}. */
    private static final long FIRST_PENDING_TOKEN = 1L << 62;

    private static final String CHANNELS_REMEDY =
            "it serves Quoit's own channels; give the bootstrap a channel class of io.quoit.netty, as Quoit.transport() hands "
                    + "out";

    /** What was told to be of another transport: each once. */
    private static final Set<Class<?>> FOREIGN = ConcurrentHashMap.newKeySet();

    /** How long the end of a loop waits for bytes that closed connections still have to send, and then for their resets. */
    private static final long END_PATIENCE_NANOS = 1_000_000_000L;

    private final ThreadAwareExecutor executor;
    private final NativeLibrary library;
    private final QuoitIoHandlerConfig config;
    private final int index;
    private final long loop;
    private final Remote remote;
    private final CommandBatch commands;
    private final OutboundWalk walk;
    private final BatchedSends sends;
    private final LeaseReturns returns;
    private final LeasePool leases;
    private final DatagramTable datagrams;
    private final Metrics metrics;
    private final ByteBuffer events;
    private final long eventsAddress;

    private final LongObjectHashMap<AbstractQuoitStreamChannel> connections =
            new LongObjectHashMap<>(FIRST_CONNECTIONS, CONNECTIONS_LOAD);
    private final LongObjectHashMap<AbstractQuoitServerChannel> listeners = new LongObjectHashMap<>();
    /** Connects and attaches whose connection has no id yet. */
    private final LongObjectHashMap<AbstractQuoitStreamChannel> pending = new LongObjectHashMap<>();
    private final ArrayList<Registration> registrations = new ArrayList<>();
    /** What is to be done once all events of this run were reported. */
    private final ArrayList<EndOfRun> completions = new ArrayList<>();

    private long nextToken = FIRST_PENDING_TOKEN;
    /** The next turn must not wait: something follows it. */
    private boolean hurry;
    /** Nothing more will happen on this loop but Netty's tasks. */
    private boolean failed;
    /** The thread that waits for tasks although the loop has failed. */
    private volatile Thread waitsForTasks;

    private boolean destroyed;

    private QuoitIoHandler(ThreadAwareExecutor executor, QuoitIoHandlerConfig config) {
        this.executor = executor;
        this.config = config;
        this.library = NativeLoader.library();
        this.index = LoopNumbers.take();
        long made = 0;
        try {
            ByteBuffer out = ByteBuffer.allocateDirect(Long.BYTES).order(ByteOrder.nativeOrder());
            ByteBuffer nativeConfig = config.toNative(library);
            if (library.loopCreate(library.address(nativeConfig), index, library.address(out)) < 0) {
                throw new UnsupportedOperationException("a loop cannot be made: " + library.errorText());
            }
            made = out.getLong(0);
            loop = made;
            if (library.loopRemote(loop, library.address(out)) < 0) {
                throw new IllegalStateException("quoit_loop_remote: " + library.errorText());
            }
            remote = new Remote(library, out.getLong(0));
            commands = new CommandBatch(library, STAGING_BYTES);
            walk = new OutboundWalk(commands, config);
            sends = new BatchedSends(commands, walk);
            returns = new LeaseReturns(remote, commands);
            leases = new LeasePool(
                    library,
                    returns,
                    config.receiveSlots(),
                    config.receiveSlotSize(),
                    config.receiveSlotsForApplication(),
                    config.leasesBeforeCopy());
            datagrams = new DatagramTable(library, loop, config, returns);
            metrics = new Metrics(library, remote, leases, index, engine(), library.engineReason(loop));
            events = ByteBuffer.allocateDirect(EVENTS * Event.SIZE).order(ByteOrder.nativeOrder());
            eventsAddress = library.address(events);
        } catch (Throwable failure) {
            // Mostly an error, of memory that is short: to Netty there is no handler that it could destroy.
            if (made != 0) {
                library.loopDestroy(made);
            }
            LoopNumbers.give(index);
            throw failure;
        }
        if (config.engine() == QuoitEngine.AUTO && engine() == QuoitEngine.EPOLL) {
            LOGGER.warn("Quoit runs on epoll: {}", library.engineReason(loop));
        }
    }

    /**
     * A factory with {@link QuoitIoHandlerConfig#defaults()}.
     *
     * @return the factory, for {@code MultiThreadIoEventLoopGroup}
     * @throws UnsupportedOperationException if the library cannot be used here, with the reason and the remedy
     */
    public static IoHandlerFactory newFactory() {
        return newFactory(QuoitIoHandlerConfig.defaults());
    }

    /**
     * A factory of loops with these settings. An event loop that cannot be made, as where io_uring is required and denied,
     * throws {@link UnsupportedOperationException} with the reason and the remedy.
     *
     * @param config the settings
     * @return the factory, for {@code MultiThreadIoEventLoopGroup}
     * @throws UnsupportedOperationException if the library cannot be used here, with the reason and the remedy
     */
    public static IoHandlerFactory newFactory(QuoitIoHandlerConfig config) {
        java.util.Objects.requireNonNull(config, "config");
        NativeLoader.library();
        return executor -> new QuoitIoHandler(executor, config);
    }

    QuoitEngine engine() {
        return library.engine(loop) == Abi.ENGINE_URING ? QuoitEngine.URING : QuoitEngine.EPOLL;
    }

    QuoitIoHandlerConfig config() {
        return config;
    }

    CommandBatch commands() {
        return commands;
    }

    OutboundWalk walk() {
        return walk;
    }

    BatchedSends sends() {
        return sends;
    }

    LeasePool leases() {
        return leases;
    }

    DatagramTable datagrams() {
        return datagrams;
    }

    Metrics metrics() {
        return metrics;
    }

    @Override
    public void initialize() {
        Thread thread = Thread.currentThread();
        if (library.isVirtual(thread)) {
            failed = true;
            throw new IllegalStateException("Quoit's loops need a platform thread each; " + thread
                    + " is virtual: give the event loop group a thread factory of platform threads");
        }
        returns.start();
        // The first turn binds the loop to this thread.
        turn(0);
        Metrics.add(metrics);
        if (executor instanceof SingleThreadEventExecutor events) {
            // Without a quiet period it may not ask for this before it ends, as where one of its own tasks shuts it down. Of what is
            // closed only in destroy() no handler is told: tasks are refused by then.
            events.addShutdownHook(this::finish);
        }
    }

    /** A last run, by which writes are done that came in the one before, and then the end of all channels. */
    private void finish() {
        if (!failed) {
            handle(turn(0));
        }
        prepareToDestroy();
    }

    @Override
    public int run(IoHandlerContext context) {
        if (destroyed) {
            return 0;
        }
        if (failed) {
            waitForTasks(context);
            return 0;
        }
        long timeout = 0;
        if (!hurry && context.canBlock()) {
            long now = System.nanoTime();
            // The native loop does not coalesce past the end of its wait: a scheduled task would end each.
            timeout = context.deadlineNanos() == -1 ? -1 : Math.max(config.coalesceNanos(), context.delayNanos(now));
        }
        hurry = false;
        int filled = turn(timeout);
        if (context.shouldReportActiveIoTime()) {
            long before = System.nanoTime();
            int handled = handle(filled);
            context.reportActiveIoTime(System.nanoTime() - before);
            return handled;
        }
        return handle(filled);
    }

    /** Netty goes on calling a loop that has failed, until its group is shut down: without a wait, for a whole processor. */
    private void waitForTasks(IoHandlerContext context) {
        // Before the look for tasks: whoever adds one behind that sees it.
        waitsForTasks = Thread.currentThread();
        if (context.canBlock()) {
            long nanos = context.deadlineNanos() == -1 ? Long.MAX_VALUE : context.delayNanos(System.nanoTime());
            LockSupport.parkNanos(this, nanos);
        }
    }

    private int turn(long timeoutNanos) {
        int given = commands.count();
        int filled = library.turn(loop, commands.address(), given, eventsAddress, EVENTS, timeoutNanos);
        metrics.turn(given, Math.max(0, filled));
        commands.taken();
        sends.taken();
        if (filled < 0) {
            fail("a turn failed: " + library.errorText());
            return 0;
        }
        return filled;
    }

    /** The engine has failed for good: nothing more will happen on this loop. */
    private void fail(String what) {
        failed = true;
        LOGGER.error("Quoit: {}; the loop's connections are lost", what);
        executor.execute(this::prepareToDestroy);
    }

    private int handle(int filled) {
        if (filled < EVENTS) {
            // All that the library refused is among these events.
            followUpSends(filled);
        } else {
            hurry = true;
        }
        int handled = 0;
        for (int event = 0; event < filled; event++) {
            try {
                handled += dispatch(event * Event.SIZE);
            } catch (Throwable failure) {
                // Also an error: it is one channel's, and the loop is that of others as well.
                LOGGER.warn("Quoit: a handler failed while an event was reported", failure);
            }
        }
        for (int completion = 0; completion < completions.size(); completion++) {
            try {
                completions.get(completion).complete();
            } catch (Throwable failure) {
                LOGGER.warn("Quoit: the end of a run of reads failed", failure);
            }
        }
        completions.clear();
        sends.endOfRun();
        return handled;
    }

    private int dispatch(int at) {
        int kind = events.getShort(at + Event.KIND);
        long id = events.getLong(at + Event.CONNECTION);
        long token = events.getLong(at + Event.TOKEN);
        switch (kind) {
            case Abi.EVENT_DATA -> {
                long lease = events.getLong(at + Event.LEASE);
                AbstractQuoitStreamChannel channel = connections.get(id);
                if (channel == null) {
                    leases.discard(lease);
                    return 0;
                }
                channel.inbound().data(events.getLong(at + Event.DATA), events.getInt(at + Event.LENGTH), lease);
            }
            case Abi.EVENT_SENT -> {
                AbstractQuoitStreamChannel channel = connections.get(id);
                if (channel == null) {
                    return 0;
                }
                channel.outbound().sent(token);
            }
            case Abi.EVENT_ACCEPTED_DESCRIPTOR -> {
                int descriptor = events.getInt(at + Event.DESCRIPTOR);
                AbstractQuoitServerChannel channel = listeners.get(events.getLong(at + Event.LISTENER));
                if (channel == null) {
                    Descriptors.close(descriptor);
                    return 0;
                }
                channel.accepted(descriptor);
            }
            case Abi.EVENT_CONNECTING -> begin(pending.get(token), id);
            case Abi.EVENT_OPENED -> {
                AbstractQuoitStreamChannel channel = pending.remove(token);
                begin(channel, id);
                channel.opened();
            }
            case Abi.EVENT_END_OF_STREAM, Abi.EVENT_WRITABLE -> {
                AbstractQuoitStreamChannel channel = connections.get(id);
                if (channel == null) {
                    return 0;
                }
                if (kind == Abi.EVENT_WRITABLE) {
                    channel.outbound().writable();
                } else {
                    channel.inbound().ended();
                }
            }
            case Abi.EVENT_SEND_FAILED -> {
                AbstractQuoitStreamChannel channel = connections.get(id);
                if (channel == null) {
                    return 0;
                }
                channel.inbound().sendFailed();
            }
            case Abi.EVENT_CLOSED -> {
                AbstractQuoitStreamChannel channel = connections.remove(id);
                pending.remove(token);
                if (channel == null) {
                    return 0;
                }
                channel.ended(events.getShort(at + Event.REASON), events.getInt(at + Event.ERROR));
            }
            case Abi.EVENT_LISTENER_CLOSED -> {
                AbstractQuoitServerChannel channel = listeners.remove(events.getLong(at + Event.LISTENER));
                if (channel == null) {
                    return 0;
                }
                channel.ended(events.getInt(at + Event.ERROR));
            }
            case Abi.EVENT_ACCEPT_FAILED -> {
                AbstractQuoitServerChannel channel = listeners.get(events.getLong(at + Event.LISTENER));
                if (channel == null) {
                    return 0;
                }
                channel.acceptFailed(events.getInt(at + Event.ERROR));
            }
            case Abi.EVENT_REFUSED -> {
                refused(id, token, events.getShort(at + Event.REASON), events.getInt(at + Event.ERROR));
                return 0;
            }
            default -> {
                // Those of datagram sockets, WOKEN, and what this package does not ask for.
                return kind >= Abi.EVENT_DATAGRAM_OPENED ? datagrams.dispatch(kind, events, at) : 0;
            }
        }
        return 1;
    }

    private void begin(AbstractQuoitStreamChannel channel, long id) {
        connections.put(id, channel);
        channel.connection(id);
    }

    private void refused(long id, long token, int reason, int error) {
        if (token >= FIRST_PENDING_TOKEN) {
            AbstractQuoitStreamChannel channel = pending.remove(token);
            if (channel != null) {
                // Nothing was made of it.
                channel.ended(Abi.CLOSED_ERROR, reason == Abi.REFUSED_ERROR ? error : -Errno.LOOP_IS_FULL);
            }
            return;
        }
        AbstractQuoitStreamChannel channel = connections.get(id);
        if (channel != null && token != 0) {
            channel.outbound().refused(token, reason, error);
        }
    }

    /**
     * Tells the channels of the last batches what became of their sends. First of all: what a handler writes next can be
     * copied then, and is done at once.
     */
    private void followUpSends(int filled) {
        commands.turnsTold();
        if (!sends.anyTaken()) {
            return;
        }
        for (int at = 0; at < filled * Event.SIZE; at += Event.SIZE) {
            if (events.getShort(at + Event.KIND) == Abi.EVENT_REFUSED && events.getLong(at + Event.TOKEN) < FIRST_PENDING_TOKEN) {
                dispatch(at);
                events.putShort(at + Event.KIND, TOLD);
            }
        }
        sends.toldAll();
    }

    // ---- for channels, on the loop's thread ----

    /** Runs something when all events of this run have been reported. */
    void atEndOfRun(EndOfRun completion) {
        completions.add(completion);
    }

    /** The next turn must not wait. */
    void hurry() {
        hurry = true;
    }

    /** Attaches a connected socket, paused; returns the command's place in the batch. */
    int attach(AbstractQuoitStreamChannel channel, int descriptor) {
        long token = nextToken++;
        pending.put(token, channel);
        return commands.attach(descriptor, token);
    }

    /** Connects. The text is copied. */
    void connect(AbstractQuoitStreamChannel channel, Connecting request) {
        long token = nextToken++;
        // Throws for an address that is none.
        request.write(library, commands, token);
        pending.put(token, channel);
        hurry = true;
    }

    int descriptor(long connection) {
        return library.connectionDescriptor(loop, connection);
    }

    /**
     * Gives the kernel as much of the list of pieces as it takes at once, and returns how many bytes that is; none where
     * they have to be lent, which then also tells what is wrong with the connection, if anything is.
     */
    long trySend(long connection) {
        PieceLists pieces = commands.pieces();
        return Math.max(0, library.trySend(loop, connection, pieces.address(), pieces.count()));
    }

    /** A number that changes whenever the peer takes some of what was sent. A system call. */
    long takenByPeer(long connection) {
        return library.takenByPeer(loop, connection);
    }

    /** Bytes that connections have yet to send. */
    long queuedBytes() {
        return metrics.queuedBytes(loop);
    }

    /** Accepts descriptors from a listening socket; takes it over. */
    long listen(AbstractQuoitServerChannel channel, int descriptor) {
        ByteBuffer room = ByteBuffer.allocateDirect(8 + Abi.ListenOptions.STRUCT_SIZE).order(ByteOrder.nativeOrder());
        long at = library.address(room);
        if (library.socketAdopt(descriptor, at) < 0) {
            throw new io.netty.channel.ChannelException("listening: " + library.errorText());
        }
        long socket = room.getLong(0);
        room.putInt(8, Abi.ListenOptions.STRUCT_SIZE);
        library.listenOptionsDefault(at + 8);
        room.putInt(8 + Abi.ListenOptions.ACCEPT, Abi.ACCEPT_DESCRIPTORS);
        room.putInt(8 + Abi.ListenOptions.TELL_FAILURES, 1);
        if (library.listen(loop, socket, at + 8, at) < 0) {
            throw new io.netty.channel.ChannelException("listening: " + library.errorText());
        }
        long listener = room.getLong(0);
        listeners.put(listener, channel);
        return listener;
    }

    // ---- registrations ----

    @Override
    public IoRegistration register(IoHandle handle) {
        if (!(handle instanceof QuoitIoHandle quoit)) {
            throw new IllegalArgumentException(handle.getClass().getName() + ": " + CHANNELS_REMEDY);
        }
        if (destroyed || failed) {
            throw new IllegalStateException("the loop has ended");
        }
        // May throw: then there is no registration that anybody could cancel.
        handle.registered();
        Registration registration = new Registration(quoit, registrations.size());
        registrations.add(registration);
        return registration;
    }

    @Override
    public boolean isCompatible(Class<? extends IoHandle> handleType) {
        boolean compatible = QuoitIoHandle.class.isAssignableFrom(handleType);
        // Channels ask before they register, with a class of theirs, and fail with the event loop's class name alone if it is not
        // theirs. Who asks with an interface wants to know what the loop is, as Reactor Netty before it sends a file.
        if (!compatible && !handleType.isInterface() && FOREIGN.add(handleType)) {
            LOGGER.warn("Quoit: a loop was offered a {}: {}", handleType.getName(), CHANNELS_REMEDY);
        }
        return compatible;
    }

    private final class Registration implements IoRegistration {
        private final QuoitIoHandle handle;
        /** Where it is among the registrations; negative if it is not any more. */
        private int place;

        private volatile boolean cancelled;

        Registration(QuoitIoHandle handle, int place) {
            this.handle = handle;
            this.place = place;
        }

        @Override
        @SuppressWarnings("unchecked")
        public <T> T attachment() {
            return (T) QuoitIoHandler.this;
        }

        @Override
        public long submit(IoOps ops) {
            throw new UnsupportedOperationException("Quoit's channels give commands to their loop, not operations");
        }

        @Override
        public boolean isValid() {
            return !cancelled;
        }

        @Override
        public boolean cancel() {
            if (cancelled) {
                return false;
            }
            cancelled = true;
            if (executor.isExecutorThread(Thread.currentThread())) {
                remove();
            } else {
                executor.execute(this::remove);
            }
            return true;
        }

        private void remove() {
            if (place < 0) {
                // Two threads have cancelled it.
                return;
            }
            // The last one fills the place.
            Registration last = registrations.remove(registrations.size() - 1);
            if (last != this) {
                last.place = place;
                registrations.set(place, last);
            }
            place = -1;
            handle.unregistered();
        }
    }

    // ---- waking and ending ----

    @Override
    public void wakeup() {
        if (!executor.isExecutorThread(Thread.currentThread())) {
            remote.wake();
            LockSupport.unpark(waitsForTasks);
        }
    }

    @Override
    public void prepareToDestroy() {
        for (Registration registration : List.copyOf(registrations)) {
            try {
                registration.handle.close();
            } catch (Exception failure) {
                LOGGER.warn("Quoit: a channel could not be closed", failure);
            }
        }
    }

    @Override
    public void destroy() {
        if (destroyed) {
            return;
        }
        // What was registered since.
        prepareToDestroy();
        finishSending();
        destroyed = true;
        returns.stop();
        Metrics.remove(metrics);
        if (library.loopDestroy(loop) < 0) {
            // What it was lent may still be read: it is never released.
            LOGGER.warn("Quoit: a loop was not ended cleanly: {}", library.errorText());
        } else {
            // Nothing reads what was to be sent any more.
            connections.values().forEach(channel -> channel.outbound().closed());
            datagrams.destroyed();
        }
        LoopNumbers.give(index);
    }

    /**
     * Lets closed connections send what they have, and resets those that cannot: their peers must not take a part for the whole,
     * and what was lent must come back.
     */
    private void finishSending() {
        long end = System.nanoTime() + END_PATIENCE_NANOS;
        while (!failed && (commands.count() > 0 || queuedBytes() > 0 || datagrams.lends())) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                break;
            }
            handle(turn(commands.count() > 0 ? 0 : left));
        }
        for (AbstractQuoitStreamChannel channel : List.copyOf(connections.values())) {
            if (channel.outbound().holds() || library.queued(loop, channel.connection()) > 0) {
                commands.simple(Abi.COMMAND_ABORT, channel.connection());
            }
        }
        end = System.nanoTime() + END_PATIENCE_NANOS;
        while (!failed && (commands.count() > 0 || anyLends()) && System.nanoTime() < end) {
            handle(turn(commands.count() > 0 ? 0 : 1_000_000));
        }
    }

    private boolean anyLends() {
        return connections.values().stream().anyMatch(channel -> channel.outbound().lends());
    }
}
