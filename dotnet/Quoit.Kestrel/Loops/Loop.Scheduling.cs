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
    private bool _asleep;
    private bool _closed;
    private bool _released;

    /// <summary>Runs it on the loop's thread before the next turn; on the thread pool once the loop has ended.</summary>
    public override void Schedule(Action<object?> action, object? state)
    {
        if (OnThread && !_closed)
        {
            _own.Add(new WorkItem(action, state));
        }
        else if (!TryPost(action, state))
        {
            System.Threading.ThreadPool.UnsafeQueueUserWorkItem(action, state, preferLocal: false);
        }
    }

    /// <summary>The same; false once the loop has ended.</summary>
    public bool TryPost(Action<object?> action, object? state)
    {
        lock (_gate)
        {
            if (_closed)
            {
                return false;
            }
            _posted.Add(new WorkItem(action, state));
            if (_asleep)
            {
                _asleep = false;
                _ = NativeMethods.RemoteWake(_remote);
            }
        }
        return true;
    }

    /// <summary>Runs what was scheduled, in as many rounds as let answers to it leave in the same turn; answers
    /// whether something is left.</summary>
    private bool RunScheduled()
    {
        RunOwn();
        lock (_gate)
        {
            (_posted, _taken) = (_taken, _posted);
        }
        _taken.RunAll();
        RunOwn();
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
        lock (_gate)
        {
            return _asleep = _posted.Count == 0;
        }
    }

    private void WakeUp()
    {
        lock (_gate)
        {
            _asleep = false;
        }
    }

    private void EndScheduling()
    {
        lock (_gate)
        {
            _closed = true;
        }
        // Somebody may wait for what these do; they find the loop's connections ended.
        _posted.RunAll();
        RunOwn();
        RunOwn();
        lock (_gate)
        {
            _released = true;
            NativeMethods.RemoteRelease(_remote);
        }
    }

    /// <summary>Fills in the counters as the loop last published them; false once it has ended.</summary>
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
