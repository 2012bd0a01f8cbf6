using Quoit.Kestrel.Native;

namespace Quoit.Kestrel;

/// <summary>A feature of io_uring that the transport uses where it can.</summary>
/// <param name="Name">Its name, as <see cref="QuoitTransportOptions.Without"/> takes it.</param>
/// <param name="Usable">Whether it is used here.</param>
/// <param name="About">What it is, in one line.</param>
/// <param name="MinimumKernel">The first mainline kernel that has it.</param>
/// <param name="Reason">Why it is not used here.</param>
public sealed record QuoitFeature(string Name, bool Usable, string About, string MinimumKernel, string Reason);

/// <summary>What <see cref="QuoitDoctor.Examine"/> found.</summary>
/// <param name="CanRun">Whether Quoit can run here at all; otherwise endpoints are left to the transport of sockets.</param>
/// <param name="IoUring">Whether io_uring is usable; otherwise epoll runs.</param>
/// <param name="Reason">That it is usable, or what is missing and the remedy, in one line.</param>
/// <param name="Library">The file of the native library; null if it cannot be used.</param>
/// <param name="LibraryVersion">Its version; null if it cannot be used.</param>
/// <param name="Features">The features of io_uring; empty if the library cannot be used.</param>
public sealed record QuoitReport(
    bool CanRun, bool IoUring, string Reason, string? Library, string? LibraryVersion, IReadOnlyList<QuoitFeature> Features);

/// <summary>Says what Quoit can do on this machine.</summary>
public static unsafe class QuoitDoctor
{
    /// <summary>Finds the library and tries io_uring, by making a ring as the transport would and dropping it; some
    /// milliseconds.</summary>
    /// <returns>What was found; that Quoit cannot run is no error but an answer.</returns>
    public static QuoitReport Examine()
    {
        try
        {
            var library = QuoitLibrary.Load();
            var (usable, reason, features) = Probe();
            return new QuoitReport(true, usable, reason, library.Path, library.Version, [.. features.Select(feature => feature.Feature)]);
        }
        catch (QuoitUnavailableException missing)
        {
            return new QuoitReport(false, false, missing.Message, null, null, []);
        }
    }

    /// <summary>The bits of features, for the library.</summary>
    internal static ulong FeatureBits(IList<string> names) => names.Count == 0
        ? 0
        : Probe().Features.Where(known => names.Contains(known.Feature.Name)).Aggregate(0UL, static (bits, known) => bits | known.Bit);

    /// <summary>Which of these names are those of no feature, in one line each. Only the library knows; where there is none, nothing
    /// is wrong.</summary>
    internal static IEnumerable<string> FeatureFaults(IList<string> names)
    {
        if (names.Count == 0)
        {
            return [];
        }
        try
        {
            QuoitLibrary.Load();
            var known = Probe().Features.ConvertAll(static found => found.Feature.Name);
            return names.Where(name => !known.Contains(name)).Select(name =>
                $"{QuoitTransportOptions.Section}:{nameof(QuoitTransportOptions.Without)} names \"{name}\", which is not a feature that can be "
                    + $"switched off; these are: {string.Join(", ", known)}.");
        }
        catch (QuoitUnavailableException)
        {
            // Told when it is to run.
            return [];
        }
    }

    private static (bool Usable, string Reason, List<(QuoitFeature Feature, ulong Bit)> Features) Probe()
    {
        nint capabilities;
        if (NativeMethods.CapabilitiesProbe(null, &capabilities) < 0)
        {
            throw new QuoitUnavailableException($"What io_uring can do here cannot be found out: {NativeText.LastError()}");
        }
        try
        {
            var features = new List<(QuoitFeature, ulong)>();
            var found = new NativeCapability { Size = (uint)sizeof(NativeCapability) };
            for (uint index = 0; NativeMethods.CapabilitiesGet(capabilities, index, &found) == 0; index++)
            {
                features.Add((
                    new QuoitFeature(
                        NativeText.Read(found.Name), found.Usable == 1, NativeText.Read(found.About),
                        NativeText.Read(found.MinimumKernel), NativeText.Read(found.Reason)),
                    found.Bit));
                found.Size = (uint)sizeof(NativeCapability);
            }
            return (NativeMethods.CapabilitiesUsable(capabilities) == 1, NativeText.CapabilitiesReason(capabilities), features);
        }
        finally
        {
            NativeMethods.CapabilitiesFree(capabilities);
        }
    }
}
