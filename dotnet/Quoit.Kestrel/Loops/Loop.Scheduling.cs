using System.Diagnostics;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Loops;

// What others ask of the loop, and waking it.
internal sealed unsafe partial class Loop
{
    private readonly Lock _gate = new();
    private WorkList _posted = new();
    private WorkList _taken = new();
    private WorkList _own = new();
    private WorkList _running = new();
    private volatile bool _asleep;
    private volatile bool _anyPosted;
    private volatile bool _wakePutOff;

    /// <summary>What was posted last is one connection's send, and nothing was posted before it. With the gate held.</summary>
    private bool _isOneSend;
    private bool _closed;
    private bool _released;
    private bool _isFlushing;

    /// <summary>Threads that use the loop's remote, which it keeps for them.</summary>
    private int _remoteUsers;

    /// <summary>Runs it on the loop's thread before the next turn; on the thread pool once the loop has ended.</summary>
    public override void Schedule(Action<object?> action, object? state) => Schedule(action, state, isSend: false);

    /// <summary>The same for a connection's send. In a flush it runs at once; and instead of waking the loop for it alone, on
    /// the thread that would.</summary>
    public void ScheduleSend(Action<object?> action, object? state) => Schedule(action, state, isSend: true);

    private void Schedule(Action<object?> action, object? state, bool isSend)
    {
        if (OnThread && !_closed)
        {
            if (isSend && _isFlushing)
            {
                SendFlushed(action, state);
            }
            else
            {
                _own.Add(new WorkItem(action, state));
            }
        }
        else if (!TryPost(action, state, isSend))
        {
            System.Threading.ThreadPool.UnsafeQueueUserWorkItem(action, state, preferLocal: false);
        }
    }

    /// <summary>The same for a thread other than the loop's that blocks until it has run. The pool may have no thread but that:
    /// no worker is left to wake the loop, and once the loop has ended it runs here.</summary>
    public void ScheduleAwaited(Action<object?> action, object? state)
    {
        if (!TryPost(action, state, isAwaited: true))
        {
            action(state);
        }
    }

    /// <summary>Until <see cref="EndFlush"/> a pipe's reader that is scheduled is run at once, and may send. False if that
    /// cannot be: on another thread, and while the connections were not told of all that earlier sends have become.</summary>
    public bool TryBeginFlush()
    {
        // The rest is the loop's thread's alone.
        if (!OnThread || !_isTold)
        {
            return false;
        }
        _isFlushing = true;
        return true;
    }

    public void EndFlush() => _isFlushing = false;

    /// <summary>Whether the pipe's reader runs in the midst of a flush, which waits for it.</summary>
    public bool IsInFlush { get; private set; }

    private void SendFlushed(Action<object?> action, object? state)
    {
        _isFlushing = false;
        IsInFlush = true;
        action(state);
        IsInFlush = false;
    }

    /// <summary>As <see cref="Schedule(Action{object}, object)"/>, on any thread; false once the loop has ended.</summary>
    public bool TryPost(Action<object?> action, object? state, bool isSend = false, bool isAwaited = false)
    {
        WorkItem send;
        lock (_gate)
        {
            if (_closed)
            {
                return false;
            }
            _isOneSend = isSend && _posted.Count == 0;
            _posted.Add(new WorkItem(action, state));
            _anyPosted = true;
            // The loop says that it falls asleep and then looks for what was posted; this is the other order.
            Interlocked.MemoryBarrier();
            if (!_asleep)
            {
                return true;
            }
            // What the workers are about to do will be posted as well, and they wake the loop for all of it: before they
            // run the last item, or behind it, so that this is said before looking for one.
            _wakePutOff = true;
            Interlocked.MemoryBarrier();
            if (!isAwaited && Workers.WillWake())
            {
                return true;
            }
            send = PrepareWake();
        }
        Wake(send);
        return true;
    }

    /// <summary>Wakes the loop for what was posted while the workers had more to do.</summary>
    public void WakeIfPutOff()
    {
        if (!_wakePutOff)
        {
            return;
        }
        WorkItem send;
        lock (_gate)
        {
            var wanted = _asleep && _wakePutOff && !_closed;
            _wakePutOff = false;
            if (!wanted)
            {
                return;
            }
            send = PrepareWake();
        }
        Wake(send);
    }

    /// <summary>Decides on a <see cref="Wake"/>, with the gate held, so that nobody else does. If all that was posted is one
    /// send, the loop sleeps on, and it is returned.</summary>
    private WorkItem PrepareWake()
    {
        _wakePutOff = false;
        if (_isOneSend)
        {
            Debug.Assert(_posted.Count == 1, "it waits until the loop takes it, which ends the reason for a wake");
            _anyPosted = false;
            return _posted.TakeLast();
        }
        _asleep = false;
        Interlocked.Increment(ref _remoteUsers);
        return default;
    }

    /// <summary>Wakes the loop or sends, after <see cref="PrepareWake"/> and without the gate: the loop may run at once, here
    /// too, in place of this thread, and the gate is what it looks for first.</summary>
    private void Wake(WorkItem send)
    {
        if (send.Action is not null)
        {
            send.Run();
            return;
        }
        _ = NativeMethods.RemoteWake(_remote);
        Interlocked.Decrement(ref _remoteUsers);
    }

    /// <summary>Runs what was scheduled, in as many rounds as let answers to it leave in the same turn; returns
    /// whether something is left.</summary>
    private bool RunScheduled()
    {
        RunOwn();
        if (_anyPosted)
        {
            lock (_gate)
            {
                (_posted, _taken) = (_taken, _posted);
                _anyPosted = false;
                // What it was put off for is here.
                _wakePutOff = false;
            }
            _taken.RunAll();
            RunOwn();
        }
        return _own.Count > 0;
    }

    private void RunOwn()
    {
        (_own, _running) = (_running, _own);
        _running.RunAll();
    }

    /// <summary>Announces that the loop is about to wait; false if there is something to do first.</summary>
    private bool FallAsleep()
    {
        _asleep = true;
        Interlocked.MemoryBarrier();
        if (_anyPosted)
        {
            _asleep = false;
        }
        return _asleep;
    }

    // Somebody may have done it already; a wake that comes too late ends the next wait early.
    private void WakeUp() => _asleep = false;

    private void EndScheduling()
    {
        lock (_gate)
        {
            _closed = true;
        }
        // Somebody may wait for what these do; they find the loop's connections ended.
        _posted.RunAll();
        while (_own.Count > 0)
        {
            RunOwn();
        }
        // Since the loop is closed nobody begins to use it any more. What others have begun is one system call each.
        var spin = new SpinWait();
        while (Volatile.Read(ref _remoteUsers) > 0)
        {
            spin.SpinOnce();
        }
        lock (_gate)
        {
            _released = true;
            NativeMethods.RemoteRelease(_remote);
        }
    }

    /// <summary>The loop's remote, for the listener of another; it stays until <see cref="LeaveRemote"/>. False once the loop
    /// has ended.</summary>
    public bool TryUseRemote(out nint remote)
    {
        lock (_gate)
        {
            remote = _remote;
            if (!_closed)
            {
                Interlocked.Increment(ref _remoteUsers);
            }
            return !_closed;
        }
    }

    public void LeaveRemote() => Interlocked.Decrement(ref _remoteUsers);

    /// <summary>Fills in the counters; false once it has ended.</summary>
    public bool ReadCounters(ulong* counters)
    {
        lock (_gate)
        {
            return !_released && NativeMethods.RemoteCounters(_remote, counters) >= 0;
        }
    }

    /// <summary>A list whose array is kept, and that lets go of what it ran.</summary>
    private sealed class WorkList
    {
        private WorkItem[] _items = new WorkItem[64];

        public int Count { get; private set; }

        public void Add(WorkItem item)
        {
            if (Count == _items.Length)
            {
                Array.Resize(ref _items, 2 * Count);
            }
            _items[Count++] = item;
        }

        public WorkItem TakeLast()
        {
            var item = _items[--Count];
            _items[Count] = default;
            return item;
        }

        public void RunAll()
        {
            for (var index = 0; index < Count; index++)
            {
                var item = _items[index];
                _items[index] = default;
                item.Run();
            }
            Count = 0;
        }
    }
}
