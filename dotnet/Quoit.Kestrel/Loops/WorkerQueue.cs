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
    private readonly ConcurrentQueue<WorkItem> _items = new();
    private int _loopThread;
    private int _requested;

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
        while (_items.TryDequeue(out var item))
        {
            Notify();
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
