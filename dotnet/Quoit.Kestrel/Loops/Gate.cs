using System.Runtime.CompilerServices;

namespace Quoit.Kestrel.Loops;

/// <summary>
/// Lets one asynchronous method wait for its loop, over and over, without an allocation. Everything happens on the
/// loop's thread, where <see cref="Open"/> runs what waits.
/// </summary>
internal sealed class Gate : ICriticalNotifyCompletion
{
    private Action? _waiting;

    public bool IsCompleted { get; private set; } = true;

    public void Close() => IsCompleted = false;

    public void Open()
    {
        IsCompleted = true;
        var waiting = _waiting;
        _waiting = null;
        waiting?.Invoke();
    }

    public Gate GetAwaiter() => this;

#pragma warning disable CA1822 // The awaiter's pattern wants a method of the instance.
    public void GetResult()
    {
    }
#pragma warning restore CA1822

    public void OnCompleted(Action continuation) => _waiting = continuation;

    public void UnsafeOnCompleted(Action continuation) => _waiting = continuation;
}
