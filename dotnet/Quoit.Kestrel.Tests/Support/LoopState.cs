using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>What the loops count.</summary>
internal static unsafe class LoopState
{
    private static readonly Lazy<Dictionary<string, uint>> s_offsets = new(() =>
    {
        QuoitLibrary.Load();
        var offsets = new Dictionary<string, uint>(StringComparer.Ordinal);
        var info = new NativeCounterInfo { Size = (uint)sizeof(NativeCounterInfo) };
        for (uint index = 0; NativeMethods.CounterDescribe(index, &info) == 0; index++)
        {
            offsets[NativeText.Read(info.Name)] = info.Offset;
            info.Size = (uint)sizeof(NativeCounterInfo);
        }
        return offsets;
    });

    /// <summary>A counter, summed over the loops.</summary>
    public static long Read(LoopGroup group, string name)
    {
        var counters = stackalloc ulong[256];
        long sum = 0;
        foreach (var loop in group.Loops)
        {
            new Span<ulong>(counters, 256).Clear();
            *(uint*)counters = 2048;
            if (loop.ReadCounters(counters))
            {
                sum += (long)counters[s_offsets.Value[name] / 8];
            }
        }
        return sum;
    }

    /// <summary>What connections hold.</summary>
    private static readonly string[] s_held =
        ["connections", "pool_leased", "leases_copied_now", "queued_bytes", "send_chunks_used"];

    /// <summary>Waits until no connection, lease or byte is left.</summary>
    public static Task NothingLeftAsync(LoopGroup group) => Wait.Until(
        () => s_held.All(name => Read(group, name) == 0),
        () => "left are " + string.Join(", ", s_held.Select(name => $"{name} {Read(group, name)}")));
}
