using System.Collections.Concurrent;
using System.IO.Pipelines;

namespace Quoit.Kestrel.Loops;

/// <summary>Something to be run: what a <see cref="PipeScheduler"/> is given.</summary>
internal readonly record struct WorkItem(Action<object?> Action, object? State)
{
    public void Run() => Action(State);
}

/// <summary>
/// The application's side of the pipes of one loop, on the thread pool. What one turn makes ready goes to one queue,
/// which several workers drain: each asks for another before it runs anything, so that an item that blocks never
/// holds up the next. Nothing is allocated an item, unlike a queueing of each to the pool by itself.
/// </summary>
internal sealed class WorkerQueue : PipeScheduler, IThreadPoolWorkItem
{
    /// <summary>Items after which a worker wakes the loop for their answers although there is more to do: on another
    /// processor the loop sends them meanwhile.</summary>
    private const int WakePeriod = 16;

    private readonly bool _alone;
    private readonly ConcurrentQueue<WorkItem> _items = new();
    private readonly Action _wakeLoop;
    private int _loopThread;
    private int _requested;

    /// <summary>A queue whose workers call <paramref name="wakeLoop"/> before they run the last item that there is, from
    /// time to time, and as <see cref="WillWake"/> says.</summary>
    public WorkerQueue(Action wakeLoop)
        : this(wakeLoop, alone: Environment.ProcessorCount == 1)
    {
    }

    /// <summary>The same; <paramref name="alone"/> if there is a single processor, for loop and workers together.</summary>
    internal WorkerQueue(Action wakeLoop, bool alone)
    {
        _wakeLoop = wakeLoop;
        _alone = alone;
    }

    /// <summary>Whether an item waits.</summary>
    public bool HasItems => !_items.IsEmpty;

    /// <summary>Whether a worker will call for the loop's waking after what this thread has just posted.</summary>
    /// <remarks>
    /// While an item waits one does. With a single processor one is asked for, if this is a thread of the pool: woken at
    /// once the loop would take its place, in the midst of an answer that is flushed in pieces, and send each piece by
    /// itself. The worker asked for has its turn when this thread's own work has ended or waits; should it block, when
    /// the pool finds that it does and adds a thread. So do the sends of Kestrel's transport of sockets, which are work
    /// items too. What else was posted meanwhile leaves with it.
    /// </remarks>
    public bool WillWake()
    {
        if (HasItems)
        {
            return true;
        }
        if (!_alone || !Thread.CurrentThread.IsThreadPoolThread)
        {
            return false;
        }
        Request();
        return true;
    }

    /// <summary>Makes <paramref name="thread"/> the one that calls <see cref="Notify"/> after what it schedules.</summary>
    public void BindTo(int thread) => _loopThread = thread;

    public override void Schedule(Action<object?> action, object? state)
    {
        _items.Enqueue(new WorkItem(action, state));
        if (Environment.CurrentManagedThreadId != _loopThread)
        {
            Request();
        }
    }

    /// <summary>Asks for a worker for what is left, and from here on for everything: the loop's thread is about to end,
    /// and another may be given its number.</summary>
    public void Unbind()
    {
        Volatile.Write(ref _loopThread, 0);
        Notify();
    }

    /// <summary>Asks for a worker if there is something to do.</summary>
    public void Notify()
    {
        if (!_items.IsEmpty)
        {
            Request();
        }
    }

    void IThreadPoolWorkItem.Execute()
    {
        // Before looking: what is enqueued from here on asks for another worker.
        Interlocked.Exchange(ref _requested, 0);
        var tick = Environment.TickCount64;
        // The pool's own, which each of its work items begins with.
        var context = ExecutionContext.Capture();
        for (var count = 1; _items.TryDequeue(out var item); count++)
        {
            if (!_items.IsEmpty)
            {
                Request();
                if (IsTimeToWake(count, ref tick))
                {
                    _wakeLoop();
                }
            }
            else
            {
                _wakeLoop();
            }
            item.Run();
            if (context is not null)
            {
                ExecutionContext.Restore(context);
            }
        }
        if (_alone)
        {
            // For those to whom WillWake has promised it.
            _wakeLoop();
        }
    }

    /// <summary>Whether the answers of so many items have waited long enough for those behind them. With a single processor
    /// the loop can only take the worker's place, and the more often it does, the fewer answers leave a turn; so there they
    /// wait for a tick of the clock, which is a few milliseconds, and not for a count.</summary>
    private bool IsTimeToWake(int count, ref long tick)
    {
        if (!_alone)
        {
            return count % WakePeriod == 0;
        }
        var before = tick;
        tick = Environment.TickCount64;
        return tick != before;
    }

    private void Request()
    {
        if (Interlocked.Exchange(ref _requested, 1) == 0)
        {
            System.Threading.ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
        }
    }
}
