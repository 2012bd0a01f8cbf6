namespace Quoit.Kestrel.Tests.Support;

/// <summary>Limits after which a test that would hang fails.</summary>
public static class Wait
{
    public static readonly TimeSpan Limit = TimeSpan.FromSeconds(60);

    public static CancellationToken Token => new CancellationTokenSource(Limit).Token;

    public static Task Soon(this Task task) => task.WaitAsync(Limit);

    public static Task<T> Soon<T>(this Task<T> task) => task.WaitAsync(Limit);

    public static Task<T> Soon<T>(this ValueTask<T> task) => task.AsTask().WaitAsync(Limit);

    /// <summary>Waits until something holds that nothing tells of.</summary>
    public static async Task Until(Func<bool> holds, Func<string> otherwise)
    {
        var end = Environment.TickCount64 + (long)Limit.TotalMilliseconds;
        while (!holds())
        {
            Assert.True(Environment.TickCount64 < end, otherwise());
            await Task.Delay(5);
        }
    }

    /// <summary>Waits until a figure has not grown for a while: there is no event for that nothing happens.</summary>
    public static async Task StandsStillAsync(Func<long> figure)
    {
        var last = -1L;
        var same = 0;
        await Until(
            () =>
            {
                var now = figure();
                same = now == last && now > 0 ? same + 1 : 0;
                last = now;
                return same > 40;
            },
            () => $"it never stood still, and is {last}");
    }
}
