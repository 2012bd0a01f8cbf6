using System.IO.Pipelines;

namespace Quoit.Kestrel.Loops;

/// <summary>
/// The application's side of the pipes, where it runs on the loop: at once. What it leaves behind in its
/// <see cref="ExecutionContext"/>, such as the value of an <see cref="AsyncLocal{T}"/>, ends with it, as on the thread pool. On a
/// thread that serves all connections of a loop the next would find it.
/// </summary>
internal sealed class ApplicationScheduler : PipeScheduler
{
    public override void Schedule(Action<object?> action, object? state)
    {
        var context = ExecutionContext.Capture();
        action(state);
        if (context is not null)
        {
            ExecutionContext.Restore(context);
        }
    }
}
