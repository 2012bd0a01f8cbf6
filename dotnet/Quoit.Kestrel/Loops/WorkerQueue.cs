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
    /// processor the loop sends them meanwhile. With a single one the loop could only take the worker's place, and more
    /// often, for fewer answers a turn.</summary>
    private static readonly int s_wakePeriod = Environment.ProcessorCount > 1 ? 16 : int.MaxValue;

    private readonly ConcurrentQueue<WorkItem> _items = new();
    private readonly Action _wakeLoop;
    private int _loopThread;
    private int _requested;

    /// <summary>A queue whose workers call <paramref name="wakeLoop"/> before they run the last item that there is, and
    /// from time to time if there are several processors.</summary>
    public WorkerQueue(Action wakeLoop) => _wakeLoop = wakeLoop;

    /// <summary>Whether an item waits. Then a worker runs, or was asked for, that will call for the loop's waking after
    /// what is posted now.</summary>
    public bool HasItems => !_items.IsEmpty;

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
        for (var count = 1; _items.TryDequeue(out var item); count++)
        {
            if (!_items.IsEmpty)
            {
                Request();
                if (count % s_wakePeriod == 0)
                {
                    _wakeLoop();
                }
            }
            else
            {
                _wakeLoop();
            }
            item.Run();
        }
    }

    private void Request()
    {
        if (Interlocked.Exchange(ref _requested, 1) == 0)
        {
            System.Threading.ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
        }
    }
}
