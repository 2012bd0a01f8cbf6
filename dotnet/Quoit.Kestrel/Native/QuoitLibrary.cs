using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;

namespace Quoit.Kestrel.Native;

/// <summary>Finds libquoit, once a process, and checks that it is one that this assembly was made for.</summary>
internal static unsafe class QuoitLibrary
{
    /// <summary>The environment variable that names the file to load, and no other.</summary>
    public const string Variable = "QUOIT_LIBRARY";

    /// <summary><c>QUOIT_ABI_VERSION</c> of the header that the structures were written for.</summary>
    public const uint AbiVersion = (1u << 16) | 15;

    private const string FileName = "libquoit.so";

    private static readonly Lazy<LoadedLibrary> s_loaded = new(LoadOnce);

    /// <summary>Makes the calls of <see cref="NativeMethods"/> usable; later calls answer as the first did.</summary>
    /// <exception cref="QuoitUnavailableException">The library is missing or another version's; the text says what to
    /// do.</exception>
    public static LoadedLibrary Load() => s_loaded.Value;

    private static LoadedLibrary LoadOnce()
    {
        if (!OperatingSystem.IsLinux() || !Environment.Is64BitProcess)
        {
            throw new QuoitUnavailableException(
                $"Quoit runs on 64-bit Linux only; this is {RuntimeInformation.OSDescription}, {RuntimeInformation.ProcessArchitecture}.");
        }
        var (handle, path) = Open();
        NativeLibrary.SetDllImportResolver(
            typeof(QuoitLibrary).Assembly, (name, _, _) => name == NativeMethods.Library ? handle : 0);
        string version;
        try
        {
            var code = NativeMethods.AbiCheck(AbiVersion);
            if (code < 0)
            {
                throw new QuoitUnavailableException(
                    $"{path} cannot be used by Quoit.Kestrel {OwnVersion}: {NativeText.LastError()}.");
            }
            NativeLayout.Check(path, NativeText.Read(NativeMethods.Layout()));
            version = NativeText.Read(NativeMethods.Version());
        }
        catch (EntryPointNotFoundException missing)
        {
            throw new QuoitUnavailableException(
                $"{path} is not a libquoit that this assembly can use ({missing.Message}); install the libquoit of Quoit.Kestrel {OwnVersion}.",
                missing);
        }
        return new LoadedLibrary(path, version);
    }

    private static string OwnVersion => typeof(QuoitLibrary).Assembly.GetName().Version?.ToString(3) ?? "?";

    /// <summary>The variable's file if it is set; otherwise beside the assembly, as a package lays it out, or where the
    /// host and the system look.</summary>
    private static (nint Handle, string Path) Open()
    {
        var named = Environment.GetEnvironmentVariable(Variable);
        if (!string.IsNullOrEmpty(named))
        {
            try
            {
                return (NativeLibrary.Load(named), named);
            }
            catch (Exception failure) when (failure is DllNotFoundException or BadImageFormatException)
            {
                throw new QuoitUnavailableException(
                    $"{named}, named by {Variable}, cannot be loaded: {Flat(failure)}.{Misfit.Of(named, failure.Message)} Let the "
                    + "variable name a libquoit.so for this machine, as the package libquoit0 has it or `make capi` of the Quoit "
                    + "repository builds it, or unset it.", failure);
            }
        }
        var tried = new List<string>();
        foreach (var path in Candidates())
        {
            if (!File.Exists(path))
            {
                tried.Add(path);
                continue;
            }
            try
            {
                return (NativeLibrary.Load(path), path);
            }
            catch (Exception failure) when (failure is DllNotFoundException or BadImageFormatException)
            {
                throw new QuoitUnavailableException(
                    $"{path} cannot be loaded: {Flat(failure)}.{Misfit.Of(path, failure.Message)} The library of a released package "
                    + $"needs 64-bit Linux with glibc 2.17 or newer, or with musl; let {Variable} name a libquoit.so built for this machine.", failure);
            }
        }
        if (NativeLibrary.TryLoad(NativeMethods.Library, typeof(QuoitLibrary).Assembly, null, out var handle))
        {
            return (handle, FileName);
        }
        if (NativeLibrary.TryLoad("libquoit.so.0", out handle))
        {
            return (handle, "libquoit.so.0");
        }
        throw new QuoitUnavailableException(
            $"{FileName} was not found: not at {string.Join(", ", tried)}, nor on the system's path. Use the package "
            + $"Quoit.Kestrel, which brings it, or let {Variable} name the file.");
    }

    private static IEnumerable<string> Candidates()
    {
        var folder = AppContext.BaseDirectory;
        var architecture = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? "arm64" : "x64";
        yield return Path.Combine(folder, FileName);
        var libc = RuntimeInformation.RuntimeIdentifier.Contains("musl", StringComparison.Ordinal) ? "linux-musl" : "linux";
        yield return Path.Combine(folder, "runtimes", $"{libc}-{architecture}", "native", FileName);
    }

    private static string Flat(Exception failure) => failure.Message.ReplaceLineEndings(" ").Trim().TrimEnd('.');
}

/// <summary>The library that was loaded.</summary>
/// <param name="Path">The file, or the name by which the system's loader found it.</param>
/// <param name="Version">Its own version.</param>
internal sealed record LoadedLibrary(string Path, string Version);

/// <summary>Compares the library's layout with the copy that this assembly was built with.</summary>
internal static class NativeLayout
{
    /// <summary>The copy: the lines of quoit-layout.txt.</summary>
    public static string[] Expected()
    {
        using var stream = typeof(NativeLayout).Assembly.GetManifestResourceStream("quoit-layout.txt")
            ?? throw new InvalidOperationException("The assembly was built without its resource quoit-layout.txt.");
        using var reader = new StreamReader(stream);
        return Lines(reader.ReadToEnd());
    }

    /// <summary>Each line of the copy must be among the library's, but for the sizes of structures that may have
    /// grown: those that begin with <c>size</c>.</summary>
    public static void Check(string path, string library)
    {
        var has = Lines(library).ToHashSet(StringComparer.Ordinal);
        var expected = Expected();
        var growing = expected.Select(line => line.Split(' '))
            .Where(words => words is ["field", _, "size", "0", _])
            .Select(words => words[1])
            .ToHashSet(StringComparer.Ordinal);
        foreach (var line in expected)
        {
            var words = line.Split(' ');
            if ((words[0] == "struct" && growing.Contains(words[1])) || words is ["constant", "QUOIT_ABI_MINOR", _])
            {
                continue;
            }
            if (!has.Contains(line))
            {
                throw new QuoitUnavailableException(
                    $"{path} is libquoit of another version: its layout lacks \"{line}\". Install the one of this package.");
            }
        }
    }

    private static string[] Lines(string text) =>
        text.Split('\n', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries);
}

/// <summary>Texts of the library.</summary>
internal static unsafe class NativeText
{
    private const int Room = 1024;

    /// <summary>A text that ends in NUL.</summary>
    public static string Read(byte* text) => Marshal.PtrToStringUTF8((nint)text) ?? "";

    /// <summary>The text of the calling thread's last failed call.</summary>
    public static string LastError()
    {
        var buffer = stackalloc byte[Room];
        return Take(buffer, NativeMethods.ErrorText(buffer, Room));
    }

    /// <summary>Why the loop runs on its engine.</summary>
    public static string EngineReason(nint loop)
    {
        var buffer = stackalloc byte[Room];
        return Take(buffer, NativeMethods.EngineReason(loop, buffer, Room));
    }

    /// <summary>What io_uring lacks here.</summary>
    public static string CapabilitiesReason(nint capabilities)
    {
        var buffer = stackalloc byte[Room];
        return Take(buffer, NativeMethods.CapabilitiesReason(capabilities, buffer, Room));
    }

    // Such calls answer the whole length, also of a text that was cut.
    private static string Take(byte* buffer, int length) =>
        length <= 0 ? "" : Encoding.UTF8.GetString(buffer, Math.Min(length, Room - 1));
}
