using System.Buffers;
using System.Net;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What is left in the process when its connections are gone. Nothing else may run in it meanwhile.</summary>
[Collection(Alone.Name)]
public class LeakScenarios
{
    public static TheoryData<Transport> Engines => Transports.Engines;

    private static int OpenDescriptors() => Directory.GetFileSystemEntries("/proc/self/fd").Length;

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Ten_thousand_connections_come_and_go_and_none_is_left(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, static application => application.MapGet("/", static () => "hello"));
        var to = server.EndPoint;
        async Task RoundsAsync(int connections)
        {
            await Parallel.ForEachAsync(Enumerable.Range(0, connections), new ParallelOptions { MaxDegreeOfParallelism = 16 }, async (number, _) =>
            {
                using var client = await Client.ConnectAsync(to);
                switch (number % 4)
                {
                    case 0:
                        await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                        Assert.Contains("hello", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
                        break;
                    case 1:
                        await client.SendAsync("GET / HT");
                        client.Reset();
                        break;
                    case 2:
                        client.EndSending();
                        break;
                    default:
                        // Gone without a word.
                        break;
                }
            });
        }
        await RoundsAsync(500);
        await LoopState.NothingLeftAsync(server.Loops!);
        var descriptors = OpenDescriptors();
        await RoundsAsync(9_500);
        await LoopState.NothingLeftAsync(server.Loops!);
        Assert.Equal(10_000, LoopState.Read(server.Loops!, "accepted"));
        await Wait.Until(() => server.Pools.Rented == 0, () => $"{server.Pools.Rented} blocks are left");
        await Wait.Until(() => OpenDescriptors() <= descriptors + 20, () => $"{OpenDescriptors()} descriptors, {descriptors} before");
    }

    /// <summary>The open descriptors, each with what it is of.</summary>
    private static HashSet<string> EachDescriptor() =>
    [
        .. Directory.GetFileSystemEntries("/proc/self/fd")
            .Select(static descriptor => $"{descriptor}: {new FileInfo(descriptor).LinkTarget}")
            // That of the list itself is closed again.
            .Where(static descriptor => !descriptor.EndsWith("/fd", StringComparison.Ordinal) && !descriptor.EndsWith(": ", StringComparison.Ordinal)),
    ];

    private sealed class PoolsThatRunOut : IMemoryPoolFactory<byte>
    {
        private int _made;

        public MemoryPool<byte> Create(MemoryPoolOptions? options = null) =>
            ++_made < 3 ? MemoryPool<byte>.Shared : throw new InvalidOperationException("there are no more pools");
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task A_pool_that_cannot_be_made_leaves_no_loop(Transport transport)
    {
        async Task FailAsync()
        {
            var options = new QuoitTransportOptions();
            transport.Configure(options);
            options.Loops = 4;
            await using var factory = new QuoitTransportFactory(Options.Create(options), null, new PoolsThatRunOut());
            await Assert.ThrowsAsync<InvalidOperationException>(() => factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0)).AsTask());
        }
        await FailAsync();
        GC.Collect();
        GC.WaitForPendingFinalizers();
        var before = EachDescriptor();
        await FailAsync();
        await Wait.Until(
            () => !EachDescriptor().Except(before).Any(), () => $"left are {string.Join(", ", EachDescriptor().Except(before))}");
    }

    private static int LoopThreads() => Directory.GetFileSystemEntries("/proc/self/task")
        .Count(static task =>
        {
            try
            {
                return File.ReadAllText($"{task}/comm").StartsWith("quoit loop", StringComparison.Ordinal);
            }
            catch (IOException)
            {
                return false; // It has just ended.
            }
        });

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Hosts_that_start_and_stop_leave_no_loop_thread_or_descriptor(Transport transport)
    {
        async Task<WeakReference> RoundAsync()
        {
            await using var server = await TestServer.HttpAsync(transport, static application => application.MapGet("/", static () => "hello"));
            using var client = await Client.ConnectAsync(server.EndPoint);
            await client.SendAsync("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            Assert.Contains("hello", await client.ReceiveTextToEndAsync(), StringComparison.Ordinal);
            return new WeakReference(server.Loops);
        }
        for (var round = 0; round < 3; round++)
        {
            await RoundAsync();
        }
        GC.Collect();
        GC.WaitForPendingFinalizers();
        var before = OpenDescriptors();
        var groups = new List<WeakReference>();
        for (var round = 0; round < 30; round++)
        {
            groups.Add(await RoundAsync());
        }
        Assert.Equal(0, LoopThreads());
        await Wait.Until(() => OpenDescriptors() <= before + 20, () => $"{OpenDescriptors()} descriptors, {before} before");
        GC.Collect();
        GC.WaitForPendingFinalizers();
        GC.Collect();
        // The last may be held by what was the last to run.
        Assert.InRange(groups.Count(static group => group.IsAlive), 0, 2);
    }

    private static void FailToMakeLoops(QuoitEngine engine, uint free)
    {
        using var factory = new QuoitTransportFactory(Options.Create(new QuoitTransportOptions { Engine = engine, Loops = 2 }));
        factory.CanBind(new IPEndPoint(IPAddress.Loopback, 0));
        Assert.NotNull(factory.Unavailable);
        Assert.Equal(free, LoopNumbers.Take());
        LoopNumbers.Give(free);
    }

    [Theory]
    [InlineData(QuoitEngine.Auto)]
    [InlineData(QuoitEngine.Epoll)]
    public async Task Loops_that_cannot_all_be_made_leave_none(QuoitEngine engine)
    {
        var taken = new List<uint>();
        try
        {
            // Another thing that there may be too little of, and that no engine can do without.
            try
            {
                while (true)
                {
                    taken.Add(LoopNumbers.Take());
                }
            }
            catch (QuoitUnavailableException)
            {
                LoopNumbers.Give(taken[^1]);
            }
            // Once for what the runtime opens at the first time, and keeps.
            FailToMakeLoops(engine, taken[^1]);
            GC.Collect();
            GC.WaitForPendingFinalizers();
            var before = EachDescriptor();
            FailToMakeLoops(engine, taken[^1]);
            // The pool's threads open some for a moment as they start; what loops leave stays.
            await Wait.Until(
                () => !EachDescriptor().Except(before).Any(), () => $"left are {string.Join(", ", EachDescriptor().Except(before))}");
        }
        finally
        {
            taken.ForEach(LoopNumbers.Give);
        }
    }
}

/// <summary>Tests that look at the whole process: they run one at a time, when all others have ended.</summary>
[CollectionDefinition(Name, DisableParallelization = true)]
public sealed class Alone
{
    public const string Name = "alone";
}
