using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>The queue between a loop and the thread pool.</summary>
public class SchedulingTests
{
    [Fact]
    public async Task An_item_that_blocks_does_not_hold_up_the_next_of_its_turn()
    {
        var queue = new WorkerQueue(static () => { });
        queue.BindTo(Environment.CurrentManagedThreadId);
        using var second = new ManualResetEventSlim();
        var first = new TaskCompletionSource();
        queue.Schedule(_ =>
        {
            Assert.True(second.Wait(Wait.Limit));
            first.SetResult();
        }, null);
        queue.Schedule(_ => second.Set(), null);
        queue.Notify();
        await first.Task.Soon();
    }

    [Fact]
    public async Task What_an_item_leaves_in_its_context_does_not_meet_the_next()
    {
        const int Items = 1000;
        var ambient = new AsyncLocal<string?>();
        var met = 0;
        using var ran = new CountdownEvent(Items);
        var queue = new WorkerQueue(static () => { });
        queue.BindTo(Environment.CurrentManagedThreadId);
        for (var item = 0; item < Items; item++)
        {
            queue.Schedule(
                _ =>
                {
                    Interlocked.Add(ref met, ambient.Value is null ? 0 : 1);
                    ambient.Value = "left behind";
                    ran.Signal();
                },
                null);
        }
        queue.Notify();
        await Task.Run(() => Assert.True(ran.Wait(Wait.Limit)));
        Assert.Equal(0, met);
    }

    [Fact]
    public async Task The_loop_is_woken_before_the_last_item_runs()
    {
        // Otherwise a last item that blocks would keep back the answers of those before it.
        var woken = new TaskCompletionSource();
        var queue = new WorkerQueue(() => woken.TrySetResult());
        queue.BindTo(Environment.CurrentManagedThreadId);
        var done = new TaskCompletionSource();
        queue.Schedule(_ => { }, null);
        queue.Schedule(_ => done.SetResult(), null);
        queue.Schedule(
            _ =>
            {
                Assert.True(woken.Task.Wait(Wait.Limit));
                done.Task.Wait(Wait.Limit);
            },
            null);
        queue.Notify();
        await done.Task.Soon();
        await woken.Task.Soon();
        await Wait.Until(() => !queue.HasItems, () => "items are left");
    }

    [Fact]
    public void With_a_single_processor_the_loop_is_woken_as_time_goes_by()
    {
        // This thread plays a worker. Others may take an item each, and are held until it has run enough of them.
        const int Enough = 4;
        var here = Environment.CurrentManagedThreadId;
        var steps = new List<string>();
        using var enough = new ManualResetEventSlim();
        using var all = new CountdownEvent(64);
        var queue = new WorkerQueue(
            () =>
            {
                if (Environment.CurrentManagedThreadId == here)
                {
                    steps.Add("wake");
                }
            },
            alone: true);
        queue.BindTo(here);
        for (var count = all.InitialCount; count > 0; count--)
        {
            queue.Schedule(
                _ =>
                {
                    if (Environment.CurrentManagedThreadId != here)
                    {
                        enough.Wait(Wait.Limit);
                    }
                    else if (steps.Count(step => step == "run") < Enough)
                    {
                        steps.Add("run");
                        var before = Environment.TickCount64;
                        SpinWait.SpinUntil(() => Environment.TickCount64 != before, Wait.Limit);
                    }
                    else
                    {
                        enough.Set();
                    }
                    all.Signal();
                },
                null);
        }
        ((IThreadPoolWorkItem)queue).Execute();
        enough.Set();
        Assert.True(all.Wait(Wait.Limit));
        // Before the first one has run nothing has waited.
        var afterRuns = steps.SkipWhile(step => step == "wake").Take((2 * Enough) - 1);
        Assert.Equal(["run", "wake", "run", "wake", "run", "wake", "run"], afterRuns);
    }

    [Fact]
    public async Task With_a_single_processor_a_worker_wakes_the_loop_for_what_the_pool_has_posted()
    {
        var woken = new TaskCompletionSource();
        var queue = new WorkerQueue(() => woken.TrySetResult(), alone: true);
        Assert.True(await Task.Run(queue.WillWake).Soon());
        await woken.Task.Soon();
    }

    [Fact]
    public async Task Nobody_else_is_told_that_a_worker_wakes_the_loop()
    {
        var alone = new WorkerQueue(static () => { }, alone: true);
        var ofSeveral = new WorkerQueue(static () => { }, alone: false);
        Assert.False(await Task.Run(ofSeveral.WillWake).Soon());
        // A thread that is not the pool's may never give way to a worker.
        var told = new TaskCompletionSource<bool>();
        new Thread(() => told.SetResult(alone.WillWake())) { IsBackground = true }.Start();
        Assert.False(await told.Task.Soon());
    }

    [Fact]
    public async Task After_the_end_of_its_loop_nothing_waits_for_that_thread()
    {
        // The runtime gives the number of a thread that has ended to another, which never calls for the workers.
        var queue = new WorkerQueue(static () => { });
        queue.BindTo(Environment.CurrentManagedThreadId);
        var before = new TaskCompletionSource();
        var behind = new TaskCompletionSource();
        queue.Schedule(_ => before.SetResult(), null);
        queue.Unbind();
        queue.Schedule(_ => behind.SetResult(), null);
        await before.Task.Soon();
        await behind.Task.Soon();
    }

    [Fact]
    public async Task What_is_scheduled_from_many_threads_runs_once_each()
    {
        var queue = new WorkerQueue(static () => { });
        var counts = new int[20_000];
        var left = counts.Length;
        var done = new TaskCompletionSource();
        Parallel.For(0, counts.Length, number => queue.Schedule(
            state =>
            {
                Interlocked.Increment(ref counts[(int)state!]);
                if (Interlocked.Decrement(ref left) == 0)
                {
                    done.SetResult();
                }
            },
            number));
        await done.Task.Soon();
        Assert.All(counts, count => Assert.Equal(1, count));
    }
}
