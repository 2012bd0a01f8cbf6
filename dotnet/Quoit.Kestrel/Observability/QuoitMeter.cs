using System.Diagnostics.Metrics;
using System.Text;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Observability;

/// <summary>
/// The meter <c>Quoit.Transport</c>: each of the library's counters as <c>quoit.NAME</c>, for each loop. Reading
/// them costs the loops nothing.
/// </summary>
internal sealed unsafe class QuoitMeter : IDisposable
{
    public const string Name = "Quoit.Transport";

    // Room for counters that a later library may have.
    private const int Room = 256;

    private readonly Meter _meter;
    private readonly bool _owned;
    private readonly LoopGroup _group;
    private bool _disposed;

    public QuoitMeter(IMeterFactory? meters, LoopGroup group)
    {
        _group = group;
        _owned = meters is null;
        _meter = meters?.Create(new MeterOptions(Name)) ?? new Meter(Name);
        var info = new NativeCounterInfo { Size = (uint)sizeof(NativeCounterInfo) };
        for (uint index = 0; NativeMethods.CounterDescribe(index, &info) == 0; index++)
        {
            Add(NativeText.Read(info.Name), NativeText.Read(info.About), info.Kind, info.Offset);
            info.Size = (uint)sizeof(NativeCounterInfo);
        }
        _meter.CreateObservableCounter(
            "quoit.loop.blocked", () => group.Blocked, "{occurrence}",
            "Times that a loop was found blocked by code that runs on it");
    }

    private void Add(string name, string about, FigureKind kind, uint offset)
    {
        var (unit, scale) = Unit(name);
        var full = "quoit." + name.Replace("_ns", "", StringComparison.Ordinal);
        if (scale != 1)
        {
            _meter.CreateObservableGauge(full, () => Read(offset, value => value * scale), unit, about);
        }
        else if (kind == FigureKind.Counter)
        {
            _meter.CreateObservableCounter(full, () => Read(offset, value => (long)value), unit, about);
        }
        else
        {
            _meter.CreateObservableUpDownCounter(full, () => Read(offset, value => (long)value), unit, about);
        }
    }

    /// <summary>OpenTelemetry's units: what is counted in braces, seconds for times.</summary>
    private static (string Unit, double Scale) Unit(string name)
    {
        if (name.EndsWith("_ns", StringComparison.Ordinal))
        {
            return ("s", 1e-9);
        }
        if (name.EndsWith("_bytes", StringComparison.Ordinal))
        {
            return ("By", 1);
        }
        return name switch
        {
            "connections" or "accepted" or "connected" => ("{connection}", 1),
            _ when name.StartsWith("closed_", StringComparison.Ordinal) => ("{connection}", 1),
            "turns" => ("{turn}", 1),
            "enters" or "system_calls" or "wake_writes" => ("{call}", 1),
            "submissions" or "completions" or "in_flight" => ("{operation}", 1),
            _ when name.StartsWith("pool_", StringComparison.Ordinal) => ("{slot}", 1),
            _ => ("{occurrence}", 1),
        };
    }

    private List<Measurement<T>> Read<T>(uint offset, Func<ulong, T> convert)
        where T : struct
    {
        var all = new List<Measurement<T>>();
        if (_disposed)
        {
            return all;
        }
        var counters = stackalloc ulong[Room];
        foreach (var loop in _group.Loops)
        {
            new Span<ulong>(counters, Room).Clear();
            *(uint*)counters = Room * sizeof(ulong);
            if (loop.ReadCounters(counters))
            {
                all.Add(new Measurement<T>(
                    convert(counters[offset / sizeof(ulong)]),
                    new KeyValuePair<string, object?>("quoit.loop", loop.Index),
                    new KeyValuePair<string, object?>("quoit.engine", _group.Engine == QuoitEngine.Epoll ? "epoll" : "io_uring")));
            }
        }
        return all;
    }

    public void Dispose()
    {
        _disposed = true;
        // One of the factory's is the factory's to dispose.
        if (_owned)
        {
            _meter.Dispose();
        }
    }
}
