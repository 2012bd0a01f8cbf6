using System.Buffers.Binary;
using System.Globalization;
using System.Runtime.InteropServices;

namespace Quoit.Kestrel.Native;

/// <summary>What is wrong with a library that could not be loaded. The loader's own words say of one for another processor
/// that it is not there.</summary>
internal static class Misfit
{
    private const int Class = 4, Data = 5, Machine = 18, Header = 64;
    private const byte Class64 = 2, LittleEndian = 1;
    private const ushort X64 = 62, Arm64 = 183;

    /// <summary>More than any libquoit has.</summary>
    private const int Largest = 16 << 20;

    /// <summary>A sentence with a space before it, or nothing where nothing can be told.</summary>
    public static string Of(string path, string reason)
    {
        byte[] library;
        try
        {
            using var file = File.OpenRead(path);
            library = new byte[Math.Min(file.Length, Largest)];
            file.ReadExactly(library);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            library = [];
        }
        var onMusl = RuntimeInformation.RuntimeIdentifier.Contains("musl", StringComparison.Ordinal);
        return Of(library, reason, RuntimeInformation.ProcessArchitecture, onMusl);
    }

    internal static string Of(ReadOnlySpan<byte> library, string reason, Architecture here, bool onMusl)
    {
        if (library.Length >= Header && library.StartsWith("\u007fELF"u8))
        {
            if (library[Class] != Class64 || library[Data] != LittleEndian)
            {
                return $" It is not for a 64-bit processor such as this process's ({here}).";
            }
            var machine = BinaryPrimitives.ReadUInt16LittleEndian(library[Machine..]);
            if (machine != (here == Architecture.Arm64 ? Arm64 : X64))
            {
                var name = machine switch
                {
                    X64 => nameof(Architecture.X64),
                    Arm64 => nameof(Architecture.Arm64),
                    _ => string.Create(CultureInfo.InvariantCulture, $"ELF's machine {machine}"),
                };
                return $" It is for {name}, and this process is for {here}: take the libquoit for that.";
            }
            var needsGlibc = library.IndexOf("\0libc.so.6\0"u8) >= 0;
            var needsMusl = library.IndexOf("\0libc.so\0"u8) >= 0;
            if (needsGlibc != needsMusl && needsMusl != onMusl)
            {
                return onMusl
                    ? " It is for glibc, and this process runs on musl: take the libquoit for that."
                    : " It is for musl, and this process runs on glibc: take the libquoit for that.";
            }
        }
        if (reason.Contains("`GLIBC_", StringComparison.Ordinal))
        {
            return " This system's glibc is too old for it.";
        }
        if (reason.Contains("failed to map segment", StringComparison.Ordinal)
            || reason.Contains("Operation not permitted", StringComparison.Ordinal))
        {
            return " Its folder is mounted noexec, or may not be run from for another reason.";
        }
        return "";
    }
}
