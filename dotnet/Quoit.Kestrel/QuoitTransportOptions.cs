using Microsoft.Extensions.Options;

namespace Quoit.Kestrel;

/// <summary>What moves the bytes.</summary>
public enum QuoitEngine
{
    /// <summary>io_uring where it is usable, otherwise epoll. The log says which one runs and why.</summary>
    Auto = 0,

    /// <summary>io_uring; binding fails with the remedy where it is not usable.</summary>
    IoUring = 1,

    /// <summary>epoll.</summary>
    Epoll = 2,
}

/// <summary>Where the application's code runs.</summary>
public enum QuoitScheduling
{
    /// <summary>On the thread pool. A handler that blocks holds up no other connection.</summary>
    ThreadPool = 0,

    /// <summary>
    /// On the loop's own thread, which spares two hand-overs per request. A handler that blocks, or computes for long,
    /// holds up every connection of its loop, and one that waits synchronously for another connection of its loop
    /// waits for ever. For applications that are asynchronous throughout.
    /// </summary>
    UnsafeInlineOnLoop = 1,
}

/// <summary>How the loops share a listening socket.</summary>
public enum QuoitAcceptMode
{
    /// <summary>One loop accepts, and hands each connection to the loop that has the fewest.</summary>
    HandOver = 0,

    /// <summary>All loops accept from the one socket; one that is awake takes what others might.</summary>
    Shared = 1,

    /// <summary>Each loop has a socket of its own (SO_REUSEPORT; TCP only). A second server on the port gets no
    /// error, and what is queued at a loop's socket is reset when it closes.</summary>
    UnsafeReusePort = 2,
}

/// <summary>Options of the transport; in configuration, the section <c>Kestrel:Quoit</c>.</summary>
public sealed class QuoitTransportOptions
{
    /// <summary>The section of the configuration that is bound to these options.</summary>
    public const string Section = "Kestrel:Quoit";

    /// <summary>What moves the bytes. Defaults to <see cref="QuoitEngine.Auto"/>.</summary>
    public QuoitEngine Engine { get; set; } = QuoitEngine.Auto;

    /// <summary>
    /// Whether binding fails where Quoit cannot run, instead of leaving the endpoint to the transport of sockets.
    /// Another <see cref="Engine"/> than Auto requires as much. Defaults to <see langword="false"/>.
    /// </summary>
    public bool Require { get; set; }

    /// <summary>Where the application's code runs. Defaults to <see cref="QuoitScheduling.ThreadPool"/>.</summary>
    public QuoitScheduling Scheduling { get; set; } = QuoitScheduling.ThreadPool;

    /// <summary>Loops, each a thread of its own: 1 to 1,024. Defaults to the number of processors, at most 16.</summary>
    public int Loops { get; set; } = Math.Min(Environment.ProcessorCount, 16);

    /// <summary>Whether each loop's thread is bound to a processor of its own. Defaults to <see langword="false"/>.</summary>
    public bool PinLoops { get; set; }

    /// <summary>How the loops share a listening socket. Defaults to <see cref="QuoitAcceptMode.HandOver"/>.</summary>
    public QuoitAcceptMode AcceptMode { get; set; } = QuoitAcceptMode.HandOver;

    /// <summary>Connections that may wait to be accepted, within the kernel's own limit: 1 or more. Defaults to
    /// 512.</summary>
    public int Backlog { get; set; } = 512;

    /// <summary>Whether small writes are sent at once (TCP_NODELAY). Defaults to <see langword="true"/>.</summary>
    public bool NoDelay { get; set; } = true;

    /// <summary>Idle time after which the kernel probes whether the peer lives, and the time between its 9 probes;
    /// whole seconds, zero for none. Defaults to zero.</summary>
    public TimeSpan KeepAlive { get; set; }

    /// <summary>Connections of one loop, at which it stops accepting: 1 to 1,048,576. Defaults to 16,384.</summary>
    public int Connections { get; set; } = 16_384;

    /// <summary>Slots of a loop's receive memory: 1 to 32,768. Touched as they are used. Defaults to 1,024.</summary>
    public int ReceiveSlots { get; set; } = 1024;

    /// <summary>Bytes of one slot: 64 to 16,777,216. Defaults to 16,384.</summary>
    public int ReceiveSlotSize { get; set; } = 16 * 1024;

    /// <summary>Slots that one connection may fill in a turn of its loop before it waits for the next: 1 to 32,768.
    /// Defaults to 16.</summary>
    public int LeasesPerConnection { get; set; } = 16;

    /// <summary>Bytes received and not yet read by the application at which receiving pauses; null or 0 for no
    /// limit. Defaults to 1 MiB.</summary>
    public long? MaxReadBufferSize { get; set; } = 1024 * 1024;

    /// <summary>Bytes written and not yet sent at which the application's flush waits; null or 0 for no limit.
    /// Defaults to 64 KiB.</summary>
    public long? MaxWriteBufferSize { get; set; } = 64 * 1024;

    /// <summary>How long a loop that has nothing to do looks for more before it sleeps, at the price of a processor:
    /// zero to one second. Defaults to zero.</summary>
    public TimeSpan SpinBudget { get; set; }

    /// <summary>
    /// How long a loop that sleeps may go on doing so for more than the first event: zero for not at all, or from 1 µs to
    /// 100 ms, without a <see cref="SpinBudget"/>. Fewer turns, each with more to do, for responses that are later by up to
    /// that time. The loop does so only where it saves processor time of its thread, which it tries every few seconds. What
    /// the application writes from the thread pool wakes no loop before that time either. Defaults to zero.
    /// </summary>
    public TimeSpan CoalesceTime { get; set; }

    /// <summary>How long a connection that was closed here waits for its peer: more than zero. After that, one of which the
    /// kernel has all bytes is left to it, which goes on sending; one of which some are still queued here is reset when its peer
    /// has taken none for this time, to within as much again. Defaults to 10 seconds.</summary>
    public TimeSpan DrainDeadline { get; set; } = TimeSpan.FromSeconds(10);

    /// <summary>
    /// How long an endpoint that is unbound lets its connections end by themselves, before Kestrel closes those that are between
    /// two requests, and with them a request that is on its way: zero, or at most an hour. In that time have each response say
    /// <c>Connection: close</c>, so that another process, which listens on the same socket, gets the next requests. It counts towards
    /// the host's <c>ShutdownTimeout</c>. Defaults to zero.
    /// </summary>
    public TimeSpan KeepIdle { get; set; }

    /// <summary>How long after its peer's end in order a connection is called closed.</summary>
    internal TimeSpan EndGrace { get; set; } = TimeSpan.FromMilliseconds(100);

    /// <summary>How long a loop may be kept by code that runs on it before the log reports it; more than zero.
    /// Defaults to one second.</summary>
    public TimeSpan BlockedLoopLimit { get; set; } = TimeSpan.FromSeconds(1);

    /// <summary>Features of io_uring not to use, by their names in <see cref="QuoitDoctor"/>. Defaults to none.</summary>
    public IList<string> Without { get; } = [];

    /// <summary>Chunks of a loop's memory for small sends; 0 for the library's default. For tests of what happens when
    /// they are used up.</summary>
    internal int SendChunks { get; set; }

    /// <summary>How long a client may take nothing while the loop's memory for sending is short; null for the library's
    /// default. For tests.</summary>
    internal TimeSpan? StallLimit { get; set; }

    /// <summary>Milliseconds, to tell whether a loop is blocked. For tests.</summary>
    internal Func<long> Clock { get; set; } = static () => Environment.TickCount64;

    /// <summary>Is called as a connection is made. For tests of what fails there.</summary>
    internal Action? Making { get; set; }

    /// <summary>Bytes of a loop's own memory for what one turn reads: small sends, and the lists of what is lent. Less than
    /// a list is for tests of what happens when it is used up.</summary>
    internal int CopyRoom { get; set; } = 512 * 1024;

    /// <summary>What is out of range, or names what there is not, in one line each.</summary>
    internal IEnumerable<string> Faults()
    {
        var faults = new List<string>();
        void Check(bool good, string name, object? value, string range)
        {
            if (!good)
            {
                faults.Add($"{Section}:{name} is {value}; it must be {range}.");
            }
        }
        Check(Enum.IsDefined(Engine), nameof(Engine), Engine, "Auto, IoUring or Epoll");
        Check(Enum.IsDefined(Scheduling), nameof(Scheduling), Scheduling, "ThreadPool or UnsafeInlineOnLoop");
        Check(Enum.IsDefined(AcceptMode), nameof(AcceptMode), AcceptMode, "HandOver, Shared or UnsafeReusePort");
        Check(Loops is >= 1 and <= 1024, nameof(Loops), Loops, "from 1 to 1,024");
        Check(Backlog >= 1, nameof(Backlog), Backlog, "at least 1");
        Check(KeepAlive >= TimeSpan.Zero && KeepAlive.TotalSeconds <= 32_767, nameof(KeepAlive), KeepAlive, "from zero to 32,767 seconds");
        Check(Connections is >= 1 and <= 1 << 20, nameof(Connections), Connections, "from 1 to 1,048,576");
        Check(ReceiveSlots is >= 1 and <= 1 << 15, nameof(ReceiveSlots), ReceiveSlots, "from 1 to 32,768");
        Check(ReceiveSlotSize is >= 64 and <= 1 << 24, nameof(ReceiveSlotSize), ReceiveSlotSize, "from 64 to 16,777,216");
        Check(LeasesPerConnection is >= 1 and <= 1 << 15, nameof(LeasesPerConnection), LeasesPerConnection, "from 1 to 32,768");
        Check(MaxReadBufferSize is null or >= 0, nameof(MaxReadBufferSize), MaxReadBufferSize, "null, or 0 or more");
        Check(MaxWriteBufferSize is null or >= 0, nameof(MaxWriteBufferSize), MaxWriteBufferSize, "null, or 0 or more");
        Check(SpinBudget >= TimeSpan.Zero && SpinBudget.TotalSeconds <= 1, nameof(SpinBudget), SpinBudget, "from zero to one second");
        Check(
            CoalesceTime == TimeSpan.Zero || (CoalesceTime.TotalMicroseconds >= 1 && CoalesceTime.TotalMilliseconds <= 100),
            nameof(CoalesceTime), CoalesceTime, "zero, or from 1 microsecond to 100 milliseconds");
        if (CoalesceTime != TimeSpan.Zero && SpinBudget != TimeSpan.Zero)
        {
            faults.Add(
                $"{Section}:{nameof(CoalesceTime)} is {CoalesceTime} and {Section}:{nameof(SpinBudget)} is {SpinBudget}; one of them must "
                + "be zero, as a loop that spins does not sleep, and only a sleep coalesces events.");
        }
        Check(DrainDeadline > TimeSpan.Zero && DrainDeadline.TotalDays <= 1, nameof(DrainDeadline), DrainDeadline, "more than zero, at most a day");
        Check(KeepIdle >= TimeSpan.Zero && KeepIdle.TotalHours <= 1, nameof(KeepIdle), KeepIdle, "from zero to an hour");
        Check(BlockedLoopLimit > TimeSpan.Zero && BlockedLoopLimit.TotalDays <= 1, nameof(BlockedLoopLimit), BlockedLoopLimit, "more than zero, at most a day");
        faults.AddRange(QuoitDoctor.FeatureFaults(Without));
        return faults;
    }
}

/// <summary>Checks the ranges that the options document, before anything is bound.</summary>
internal sealed class QuoitTransportOptionsValidator : IValidateOptions<QuoitTransportOptions>
{
    public ValidateOptionsResult Validate(string? name, QuoitTransportOptions options)
    {
        var faults = options.Faults().ToList();
        return faults.Count == 0 ? ValidateOptionsResult.Success : ValidateOptionsResult.Fail(faults);
    }
}
