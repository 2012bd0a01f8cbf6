using System.Buffers;
using System.Diagnostics;
using System.IO.Pipelines;
using System.Runtime.InteropServices;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Loops;

/// <summary>
/// A loop of libquoit and the thread that drives it. One turn takes what everybody asked of the loop since the last,
/// in one crossing; its events are handed to the connections, whose answers leave in the next. As a
/// <see cref="PipeScheduler"/> it runs what it is given on its thread, before the next turn, so that all that was
/// written in one turn leaves together.
/// </summary>
internal sealed unsafe partial class Loop : PipeScheduler
{
    /// <summary>Events that one turn brings at most. The library handles about 64 completions in a turn.</summary>
    private const int EventRoom = 512;

    /// <summary>Milliseconds that a loop which is to end waits for the ends of its connections, all of which were
    /// aborted.</summary>
    private const long StopPatience = 5000;

    /// <summary>Nanoseconds between its looks at that limit.</summary>
    private const long StopLook = 100_000_000;

    private readonly LoopGroup _group;
    private readonly nint _handle;
    private readonly nint _remote;
    private readonly NativeEvent* _events;
    private readonly Thread _thread;
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly Dictionary<ulong, QuoitConnection> _connections = [];
    private readonly List<QuoitConnection> _received = [];
    private readonly List<QuoitConnection> _afterTurn = [];
    private readonly List<TaskCompletionSource> _barriers = [];
    private readonly long _spinTicks;
    private readonly bool _pinned;

    private int _threadId;
    private long _idleSince;
    private long _busySince;
    private bool _stopping;
    private long _stopDeadline;

    private Loop(LoopGroup group, int index, nint handle, nint remote)
    {
        _group = group;
        _handle = handle;
        _remote = remote;
        Index = index;
        Pool = group.CreatePool();
        Workers = new WorkerQueue(WakeIfPutOff);
        var options = group.Options;
        _spinTicks = (long)(options.SpinBudget.TotalSeconds * Stopwatch.Frequency);
        _pinned = options.PinLoops;
        var inline = options.Scheduling == QuoitScheduling.UnsafeInlineOnLoop;
        RunsApplication = inline;
        PipeScheduler application = inline ? new ApplicationScheduler() : Workers;
        // As in the transport of sockets: resumed at half of the limit, and 0 is without a limit.
        var read = options.MaxReadBufferSize ?? 0;
        var write = options.MaxWriteBufferSize ?? 0;
        InputOptions = new PipeOptions(Pool, application, this, read, read / 2, useSynchronizationContext: false);
        Sends = new SendScheduler(this);
        OutputOptions = new PipeOptions(Pool, Sends, application, write, write / 2, useSynchronizationContext: false);
        _events = (NativeEvent*)NativeMemory.AllocZeroed(EventRoom, (nuint)sizeof(NativeEvent));
        _commands = (NativeCommand*)NativeMemory.Alloc(CommandRoom, (nuint)sizeof(NativeCommand));
        _commandRoom = CommandRoom;
        _scratchRoom = options.CopyRoom;
        _scratch = (byte*)NativeMemory.Alloc((nuint)_scratchRoom);
        _thread = new Thread(Run) { IsBackground = true, Name = $"quoit loop {index}" };
    }

    /// <summary>Its number in its group.</summary>
    public int Index { get; }

    /// <summary>Blocks for the pipes of its connections.</summary>
    public MemoryPool<byte> Pool { get; }

    /// <summary>Where the application's side of the pipes runs, unless it runs on the loop.</summary>
    public WorkerQueue Workers { get; }

    /// <summary>Whether the application's side of the pipes runs on the loop.</summary>
    public bool RunsApplication { get; }

    /// <summary>Where the transport's side of the output pipes runs.</summary>
    public SendScheduler Sends { get; }

    public PipeOptions InputOptions { get; }

    public PipeOptions OutputOptions { get; }

    public LoopGroup Group => _group;

    /// <summary>Counts the turns, of which one may send a connection's copied bytes once.</summary>
    public long Turn { get; private set; }

    public bool OnThread => Environment.CurrentManagedThreadId == _threadId;

    /// <summary>When the code that now runs on the loop was given the thread, by <see cref="Environment.TickCount64"/>;
    /// 0 while the loop is in the library.</summary>
    public long BusySince => Volatile.Read(ref _busySince);

    /// <summary>The <see cref="BusySince"/> that was reported last.</summary>
    public long ReportedBusy { get; set; }

    /// <summary>Ends with the loop's thread; with its failure, if it failed.</summary>
    public Task Ended => _ended.Task;

    /// <summary>Makes the library's loop. Its thread runs from <see cref="Start"/> on.</summary>
    /// <exception cref="QuoitUnavailableException">The engine that is required is not usable, or there is no memory or
    /// no descriptor left for it.</exception>
    public static Loop Create(LoopGroup group, int index, uint number, NativeConfig config)
    {
        nint handle;
        nint remote;
        var code = NativeMethods.LoopCreate(&config, number, &handle);
        if (code < 0)
        {
            throw new QuoitUnavailableException($"A loop of Quoit cannot be made: {NativeText.LastError()}");
        }
        code = NativeMethods.LoopRemote(handle, &remote);
        if (code < 0)
        {
            var text = NativeText.LastError();
            _ = NativeMethods.LoopDestroy(handle);
            throw new QuoitUnavailableException($"A loop of Quoit cannot be made: {text}");
        }
        try
        {
            return new Loop(group, index, handle, remote);
        }
        catch
        {
            // There is no memory for it, or the application's factory has no pool.
            _ = NativeMethods.LoopDestroy(handle);
            NativeMethods.RemoteRelease(remote);
            throw;
        }
    }

    /// <summary>The engine that it runs on; before <see cref="Start"/>.</summary>
    public QuoitEngine Engine => NativeMethods.Engine(_handle) == (int)NativeEngine.Epoll ? QuoitEngine.Epoll : QuoitEngine.IoUring;

    /// <summary>Why; before <see cref="Start"/>.</summary>
    public string EngineReason => NativeText.EngineReason(_handle);

    public void Start() => _thread.UnsafeStart();

    /// <summary>Gives up a loop that was never started.</summary>
    public void Discard()
    {
        _ = NativeMethods.LoopDestroy(_handle);
        NativeMethods.RemoteRelease(_remote);
        Pool.Dispose();
        Free();
    }

    private void Run()
    {
        _threadId = Environment.CurrentManagedThreadId;
        Workers.BindTo(_threadId);
        if (_pinned && Kernel.PinThread(Index) < 0)
        {
            _group.Log.PinningFailed(Index);
        }
        Exception? failure = null;
        while (true)
        {
            var more = !_crowded && RunScheduled();
            Workers.Notify();
            if (_stopping && IsDone())
            {
                break;
            }
            if (!TakeTurn(more, out var filled))
            {
                failure = new QuoitUnavailableException($"Loop {Index} of Quoit has failed: {NativeText.LastError()}");
                _group.Log.LoopFailed(Index, failure.Message);
                break;
            }
            Handle(filled);
        }
        Finish(failure);
    }

    /// <summary>Whether nothing is left that uses lent memory. What was closed in order is no reason to wait: its bytes are
    /// in the kernel's hands.</summary>
    private bool IsDone()
    {
        var left = _connects.Count;
        foreach (var connection in _connections.Values)
        {
            left += connection.IsClosedInOrder ? 0 : 1;
        }
        return left == 0 || Environment.TickCount64 >= _stopDeadline;
    }

    private void BeginToStop()
    {
        _stopping = true;
        _stopDeadline = Environment.TickCount64 + StopPatience;
        FailConnects(new ObjectDisposedException(nameof(QuoitTransportFactory)));
        foreach (var connection in _connections.Values)
        {
            connection.Abort(new ConnectionAbortedException("The transport has been stopped."));
        }
    }

    /// <summary>One turn of the library's. False if the loop has failed for good.</summary>
    private bool TakeTurn(bool more, out int filled)
    {
        var wait = !more && !_crowded && _afterTurn.Count == 0 && _barriers.Count == 0;
        if (wait && _spinTicks > 0)
        {
            wait = _idleSince != 0 && Stopwatch.GetTimestamp() - _idleSince >= _spinTicks;
        }
        wait = wait && FallAsleep();
        Volatile.Write(ref _busySince, 0);
        var timeout = !wait ? 0 : _stopping ? StopLook : -1;
        _isTold = false;
        filled = NativeMethods.Turn(_handle, _commands, (nuint)_commandCount, _events, EventRoom, timeout);
        Volatile.Write(ref _busySince, Environment.TickCount64);
        if (wait)
        {
            WakeUp();
        }
        _commandCount = 0;
        if (filled < 0)
        {
            return false;
        }
        // A turn that filled all the room may not have told of everything that it refused: until it has, what was
        // copied for sending stays where it is, and nothing more is sent.
        _crowded = filled == EventRoom;
        Turn++;
        return true;
    }

    private void Handle(int filled)
    {
        for (var index = 0; index < filled; index++)
        {
            Dispatch(ref _events[index]);
        }
        _isTold = !_crowded;
        if (_spinTicks > 0)
        {
            _idleSince = filled > 0 ? 0 : _idleSince == 0 ? Stopwatch.GetTimestamp() : _idleSince;
        }
        if (!_crowded)
        {
            // Before the application runs: what its flushes leave to the next turn is kept there.
            _scratchUsed = 0;
        }
        for (var index = 0; index < _received.Count; index++)
        {
            _received[index].FlushReceived();
        }
        _received.Clear();
        if (_crowded)
        {
            return;
        }
        if (_afterTurn.Count > 0)
        {
            var waiting = _afterTurn.ToArray();
            _afterTurn.Clear();
            foreach (var connection in waiting)
            {
                connection.OnNextTurn();
            }
        }
        if (_barriers.Count > 0)
        {
            foreach (var barrier in _barriers)
            {
                barrier.TrySetResult();
            }
            _barriers.Clear();
        }
    }

    /// <summary>Ends once the loop has made a turn from now on and told of all that it brought.</summary>
    public Task TurnAsync()
    {
        var barrier = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        if (!TryPost(
            static state =>
            {
                var (loop, barrier) = ((Loop, TaskCompletionSource))state!;
                loop._barriers.Add(barrier);
            },
            (this, barrier)))
        {
            barrier.TrySetResult();
        }
        return barrier.Task;
    }

    /// <summary>Aborts what is left, ends the thread, and waits for it. Not on the loop's thread.</summary>
    public Task StopAsync()
    {
        TryPost(static state => ((Loop)state!).BeginToStop(), this);
        return Ended;
    }

    private void Finish(Exception? failure)
    {
        foreach (var connection in _connections.Values.ToArray())
        {
            connection.OnClosed(failure ?? new OperationCanceledException("The transport has been stopped."));
        }
        _connections.Clear();
        CloseUntaken();
        FailConnects(failure ?? new OperationCanceledException("The transport has been stopped."));
        _group.LoopEnded(this, failure);
        if (NativeMethods.LoopDestroy(_handle) < 0)
        {
            _group.Log.LoopFailed(Index, NativeText.LastError());
        }
        // Memory that connections lent was free when they were told of their end, but for what the library reports
        // above; what is posted from now on runs on the thread pool.
        EndScheduling();
        Workers.Unbind();
        foreach (var barrier in _barriers)
        {
            barrier.TrySetResult();
        }
        Volatile.Write(ref _busySince, 0);
        Free();
        if (failure is null)
        {
            _ended.TrySetResult();
        }
        else
        {
            _ended.TrySetException(failure);
        }
    }

    private void Free()
    {
        NativeMemory.Free(_events);
        NativeMemory.Free(_commands);
        _commands = null;
        NativeMemory.Free(_scratch);
    }
}
