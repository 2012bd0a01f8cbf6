using System.Buffers;
using System.Collections.Concurrent;
using System.Net;
using System.Net.Sockets;
using System.Runtime.ExceptionServices;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Observability;

namespace Quoit.Kestrel.Loops;

/// <summary>The loops of one transport, which share listeners and settings.</summary>
internal sealed partial class LoopGroup : IAsyncDisposable
{
    private readonly Func<MemoryPool<byte>> _createPool;
    private readonly List<Loop> _loops = [];
    private readonly List<uint> _numbers = [];
    private readonly ConcurrentDictionary<ulong, QuoitConnectionListener> _listeners = new();
    private readonly List<(Loop Loop, ulong Id)> _orphans = [];
    private readonly Timer? _watch;
    private int _nextLoop;
    private long _blocked;

    private LoopGroup(QuoitTransportOptions options, Func<MemoryPool<byte>> createPool, QuoitLog log)
    {
        Options = options;
        Log = log;
        _createPool = createPool;
        var keepAlive = (uint)Math.Ceiling(options.KeepAlive.TotalSeconds);
        StreamOptions = new NativeStreamOptions
        {
            NoDelay = options.NoDelay ? 1u : 0,
            KeepaliveIdleS = keepAlive,
            KeepaliveIntervalS = keepAlive,
            KeepaliveProbes = keepAlive == 0 ? 0u : 9,
        };
        var fallBack = CreateLoops();
        Engine = _loops[0].Engine;
        EngineReason = fallBack ?? _loops[0].EngineReason;
        var period = TimeSpan.FromMilliseconds(Math.Max(1, options.BlockedLoopLimit.TotalMilliseconds / 2));
        var started = 0;
        try
        {
            for (; started < _loops.Count; started++)
            {
                _loops[started].Start();
            }
            _watch = StartWatch(period);
        }
        catch
        {
            // No thread is to be had for one of them, or for the watch.
            foreach (var loop in _loops.Take(started))
            {
                loop.StopAsync().GetAwaiter().GetResult();
                loop.Pool.Dispose();
            }
            _loops.RemoveRange(0, started);
            DiscardLoops();
            throw;
        }
    }

    /// <summary>Looks for blocked loops from now on; not in the context of whoever binds or connects first, perhaps for one
    /// request: the loops outlive that.</summary>
    private Timer StartWatch(TimeSpan period)
    {
        using AsyncFlowControl? without = ExecutionContext.IsFlowSuppressed() ? null : ExecutionContext.SuppressFlow();
        return new Timer(static state => ((LoopGroup)state!).LookForBlockedLoops(), this, period, period);
    }

    public QuoitTransportOptions Options { get; }

    public QuoitLog Log { get; }

    public NativeStreamOptions StreamOptions { get; }

    /// <summary>The engine that all loops run on.</summary>
    public QuoitEngine Engine { get; }

    public string EngineReason { get; }

    public IReadOnlyList<Loop> Loops => _loops;

    /// <summary>Times that a loop was found kept by code for longer than <see cref="QuoitTransportOptions.BlockedLoopLimit"/>.</summary>
    public long Blocked => Interlocked.Read(ref _blocked);

    /// <summary>Why a loop has ended by itself; null if none has.</summary>
    public Exception? Failure { get; private set; }

    /// <summary>Makes and starts the loops.</summary>
    /// <exception cref="QuoitUnavailableException">The library or the engine is not usable.</exception>
    public static LoopGroup Start(QuoitTransportOptions options, Func<MemoryPool<byte>> createPool, QuoitLog log)
    {
        QuoitLibrary.Load();
        try
        {
            return new LoopGroup(options, createPool, log);
        }
        catch (OutOfMemoryException failure)
        {
            // Also where a thread cannot be started, whatever that is for.
            throw new QuoitUnavailableException(
                $"There is no memory or no thread left for {options.Loops} loop(s) of Quoit; give this process or its control group "
                + "more memory, raise the limit on threads (`ulimit -u`, TasksMax= under systemd, --pids-limit for a container), or "
                + $"run fewer loops ({QuoitTransportOptions.Section}:{nameof(QuoitTransportOptions.Loops)}).",
                failure);
        }
    }

    public MemoryPool<byte> CreatePool() => _createPool();

    /// <summary>Makes the loops, all of one engine. Returns why they are epoll's if rings could be made for some of them
    /// and not for all; null otherwise.</summary>
    private string? CreateLoops()
    {
        var config = CreateConfig(Options);
        try
        {
            try
            {
                AddLoops(config);
                return null;
            }
            catch (QuoitUnavailableException missing) when (config.Engine == (uint)NativeEngine.Auto
                && _loops.Count > 0 && _loops[0].Engine == QuoitEngine.IoUring)
            {
                // As where locked memory is enough for a few rings.
                var reason = $"io_uring runs {_loops.Count} of {Options.Loops} loops and no more; {missing.Message}";
                DiscardLoops();
                config.Engine = (uint)NativeEngine.Epoll;
                AddLoops(config);
                return reason;
            }
        }
        catch
        {
            // Also of epoll's: what they hold the transport of sockets may need.
            DiscardLoops();
            throw;
        }
    }

    private void AddLoops(NativeConfig config)
    {
        for (var index = 0; index < Options.Loops; index++)
        {
            var number = LoopNumbers.Take();
            _numbers.Add(number);
            var loop = Loop.Create(this, index, number, config);
            _loops.Add(loop);
            if (index == 0)
            {
                // Ids and figures are alike only among loops of one engine.
                var engine = loop.Engine == QuoitEngine.Epoll ? NativeEngine.Epoll : NativeEngine.Uring;
                config.Engine = (uint)engine;
            }
        }
    }

    private void DiscardLoops()
    {
        foreach (var loop in _loops)
        {
            loop.Discard();
        }
        _loops.Clear();
        _numbers.ForEach(LoopNumbers.Give);
        _numbers.Clear();
    }

    /// <summary>What the options are to the library, which must have been loaded.</summary>
    internal static unsafe NativeConfig CreateConfig(QuoitTransportOptions options)
    {
        var config = new NativeConfig { Size = (uint)sizeof(NativeConfig) };
        _ = NativeMethods.ConfigDefault(&config);
        config.Engine = (uint)(options.Engine switch
        {
            QuoitEngine.IoUring => NativeEngine.Uring,
            QuoitEngine.Epoll => NativeEngine.Epoll,
            _ => NativeEngine.Auto,
        });
        config.Without = QuoitDoctor.FeatureBits(options.Without);
        config.Connections = (uint)options.Connections;
        config.ReceiveSlots = (uint)options.ReceiveSlots;
        config.ReceiveSlotSize = (uint)options.ReceiveSlotSize;
        while (config.BufferRing > config.ReceiveSlots)
        {
            config.BufferRing /= 2;
        }
        config.LeasesPerConnection = (uint)options.LeasesPerConnection;
        config.HighWater = QuoitConnection.HighWater;
        config.LowWater = QuoitConnection.HighWater / 4;
        // Only who asks for a connection knows how long it may take: SocketsHttpHandler.ConnectTimeout, say.
        config.ConnectTimeoutNs = (long)TimeSpan.FromDays(1).TotalNanoseconds;
        config.CloseDeadlineNs = (long)(options.DrainDeadline.TotalMilliseconds * 1_000_000);
        if (options.SendChunks > 0)
        {
            config.SendChunks = (uint)options.SendChunks;
        }
        if (options.StallLimit is { } stall)
        {
            config.StallLimitNs = stall.Ticks * TimeSpan.NanosecondsPerTick;
        }
        if (options.CoalesceTime > TimeSpan.Zero)
        {
            config.Wait = (uint)NativeWait.Coalesce;
            config.SpinNs = options.CoalesceTime.Ticks * TimeSpan.NanosecondsPerTick;
        }
        return config;
    }

    /// <summary>The loop for the next connection that is made from here.</summary>
    public Loop NextLoop() => LoopAt(Interlocked.Increment(ref _nextLoop));

    private Loop LoopAt(int turn) => _loops[(int)((uint)turn % (uint)_loops.Count)];

    /// <summary>Connects on the loop whose turn it is, or where that is full on the next that is not.</summary>
    public async ValueTask<ConnectionContext> ConnectAsync(EndPoint remote, CancellationToken cancellation)
    {
        var address = Kernel.AddressText(remote);
        var turn = Interlocked.Increment(ref _nextLoop);
        for (var others = _loops.Count - 1; ; others--)
        {
            try
            {
                return await PendingConnect.StartAsync(LoopAt(turn++), remote, address, -1, cancellation).ConfigureAwait(false);
            }
            catch (SocketException full) when (others > 0 && full.SocketErrorCode == SocketError.NoBufferSpaceAvailable)
            {
            }
        }
    }

    /// <summary>Ends once every loop has made a turn from now on.</summary>
    public Task TurnAllAsync() => Task.WhenAll(_loops.Select(loop => loop.TurnAsync()));

    /// <summary>A loop's thread is about to end.</summary>
    public void LoopEnded(Loop loop, Exception? failure)
    {
        Failure ??= failure;
        foreach (var listener in _listeners.Values.Distinct().ToArray())
        {
            listener.LoopEnded(loop, failure);
        }
    }

    private void LookForBlockedLoops()
    {
        var limit = (long)Options.BlockedLoopLimit.TotalMilliseconds;
        var now = Options.Clock();
        foreach (var loop in _loops)
        {
            var since = loop.BusySince;
            if (since == 0 || since == loop.ReportedBusy || now - since < limit)
            {
                continue;
            }
            loop.ReportedBusy = since;
            Log.LoopBlocked(loop.Index, limit, Interlocked.Increment(ref _blocked));
        }
    }

    public async ValueTask DisposeAsync()
    {
        _watch?.Dispose();
        foreach (var listener in _listeners.Values.Distinct().ToArray())
        {
            await listener.DisposeAsync().ConfigureAwait(false);
        }
        Exception? failure = null;
        foreach (var loop in _loops)
        {
            try
            {
                await loop.StopAsync().ConfigureAwait(false);
            }
            catch (QuoitUnavailableException)
            {
                // It failed, which was reported when it did.
            }
            try
            {
                loop.Pool.Dispose();
            }
            catch (Exception error)
            {
                // The application's pool. The other loops would never end.
                failure = error;
            }
        }
        _numbers.ForEach(LoopNumbers.Give);
        _numbers.Clear();
        if (failure is not null)
        {
            ExceptionDispatchInfo.Throw(failure);
        }
    }
}

/// <summary>The numbers that tell apart the ids of a process's loops.</summary>
internal static class LoopNumbers
{
    private const int Room = 4096;

    private static readonly Lock s_gate = new();
    private static readonly SortedSet<uint> s_free = [.. Enumerable.Range(0, Room).Select(number => (uint)number)];

    public static uint Take()
    {
        lock (s_gate)
        {
            if (s_free.Count == 0)
            {
                throw new QuoitUnavailableException($"There are {Room} loops of Quoit in this process already.");
            }
            var number = s_free.Min;
            s_free.Remove(number);
            return number;
        }
    }

    public static void Give(uint number)
    {
        lock (s_gate)
        {
            s_free.Add(number);
        }
    }
}
