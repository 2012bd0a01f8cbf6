using Microsoft.Extensions.Options;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>Where sends run: on the loop, or on the thread that would have to wake it for one alone.</summary>
public class SendSchedulerTests
{
    private static async Task WithLoopAsync(Func<Loop, Task> test)
    {
        await using var factory = new QuoitTransportFactory(Options.Create(new QuoitTransportOptions { Loops = 1 }));
        await using var listener = await factory.BindAsync(new System.Net.IPEndPoint(System.Net.IPAddress.Loopback, 0));
        await test(factory.Group!.Loops[0]);
    }

    [Fact]
    public Task One_send_for_a_loop_that_sleeps_runs_on_its_own_thread() => WithLoopAsync(static async loop =>
    {
        var here = 0;
        var times = 0;
        // Until the loop has been found asleep.
        await Wait.Until(
            () =>
            {
                var ran = new TaskCompletionSource<bool>();
                var scheduling = Environment.CurrentManagedThreadId;
                loop.Sends.Schedule(_ => ran.SetResult(Environment.CurrentManagedThreadId == scheduling), null);
                Assert.True(ran.Task.Wait(Wait.Limit));
                times++;
                here += ran.Task.Result ? 1 : 0;
                return here > 0;
            },
            () => $"all of {times} sends ran on the loop");
    });

    [Fact]
    public Task What_is_no_send_runs_on_the_loop() => WithLoopAsync(static async loop =>
    {
        for (var round = 0; round < 100; round++)
        {
            var ran = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
            loop.Schedule(_ => ran.SetResult(loop.OnThread), null);
            Assert.True(await ran.Task.Soon());
        }
    });

    [Fact]
    public Task What_a_send_leaves_returns_to_the_loop() => WithLoopAsync(static async loop =>
    {
        for (var round = 0; round < 100; round++)
        {
            var returned = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
            async Task SendAsync()
            {
                await loop.Sends.ReturnAsync();
                var first = loop.OnThread;
                // It is there already.
                await loop.Sends.ReturnAsync();
                returned.SetResult(first && loop.OnThread);
            }
            loop.Sends.Schedule(_ => { _ = SendAsync(); }, null);
            Assert.True(await returned.Task.Soon());
        }
    });

    [Fact]
    public Task Everything_that_many_threads_schedule_runs_once() => WithLoopAsync(static async loop =>
    {
        var counts = new int[100_000];
        var left = counts.Length;
        var otherThanSends = 0;
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        void Ran(object? state)
        {
            Interlocked.Increment(ref counts[(int)state!]);
            if (!loop.OnThread && (int)state! % 3 != 0)
            {
                Interlocked.Increment(ref otherThanSends);
            }
            if (Interlocked.Decrement(ref left) == 0)
            {
                done.SetResult();
            }
        }
        await Task.Run(() => Parallel.For(0, counts.Length, number =>
        {
            if (number % 3 == 0)
            {
                loop.Sends.Schedule(Ran, number);
            }
            else
            {
                loop.Schedule(Ran, number);
            }
        })).Soon();
        await done.Task.Soon();
        Assert.All(counts, static count => Assert.Equal(1, count));
        // What is not a send runs on the loop's thread.
        Assert.Equal(0, otherThanSends);
    });

    [Fact]
    public async Task Behind_the_end_of_the_loop_sends_run_on_the_thread_pool()
    {
        Loop? ended = null;
        await WithLoopAsync(loop =>
        {
            ended = loop;
            return Task.CompletedTask;
        });
        var ran = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        async Task SendAsync()
        {
            await ended!.Sends.ReturnAsync();
            ran.SetResult(Thread.CurrentThread.IsThreadPoolThread);
        }
        ended!.Sends.Schedule(_ => { _ = SendAsync(); }, null);
        Assert.True(await ran.Task.Soon());
    }
}
