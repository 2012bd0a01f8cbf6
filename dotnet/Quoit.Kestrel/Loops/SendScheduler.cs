using System.IO.Pipelines;
using System.Threading.Tasks.Sources;

namespace Quoit.Kestrel.Loops;

/// <summary>
/// Runs what sends for a loop's connections: the readers of their output pipes. That is on the loop's thread, but for a
/// single send for which a sleeping loop would have to be woken, and would fall asleep again behind it: whoever would wake
/// it runs the send. What it cannot do there comes back by <see cref="ReturnAsync"/>.
/// </summary>
internal sealed class SendScheduler(Loop loop) : PipeScheduler, IValueTaskSource
{
    public override void Schedule(Action<object?> action, object? state) => loop.ScheduleSend(action, state);

    /// <summary>Ends on the loop's thread; on the thread pool once the loop has ended.</summary>
    public ValueTask ReturnAsync() => loop.OnThread ? default : new ValueTask(this, 0);

    void IValueTaskSource.GetResult(short token)
    {
    }

    ValueTaskSourceStatus IValueTaskSource.GetStatus(short token) => ValueTaskSourceStatus.Pending;

    void IValueTaskSource.OnCompleted(Action<object?> continuation, object? state, short token, ValueTaskSourceOnCompletedFlags flags) =>
        loop.Schedule(continuation, state);
}
