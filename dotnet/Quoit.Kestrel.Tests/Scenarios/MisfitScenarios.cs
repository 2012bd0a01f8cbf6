using System.Diagnostics;
using System.Runtime.InteropServices;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Libraries that somebody can have taken by mistake: one line names the file, what is wrong with it, and what to
/// take; and sockets serve.</summary>
public class MisfitScenarios : IDisposable
{
    private readonly string _folder = Directory.CreateTempSubdirectory("quoit-").FullName;

    public void Dispose()
    {
        Directory.Delete(_folder, recursive: true);
        GC.SuppressFinalize(this);
    }

    private string In(string name) => Path.Combine(_folder, name);

    private static string Real => Path.GetFullPath(QuoitLibrary.Load().Path);

    /// <summary>A library that needs another of this name, which is not there when it is loaded.</summary>
    private string Needing(string name, string versions = "")
    {
        var needed = In("needed.so");
        File.WriteAllText(In("versions"), versions);
        string[] options = ["-nostdlib", $"-Wl,-soname,{name}"];
        OtherLibrary.Compile(
            needed, "int needed(void) { return 0; }", versions.Length == 0 ? options : [.. options, $"-Wl,--version-script={In("versions")}"]);
        var library = In("libquoit.so");
        OtherLibrary.Compile(library, "int needed(void); int quoit_other(void) { return needed(); }", "-nostdlib", needed);
        return library;
    }

    private string ForAnotherProcessor()
    {
        var bytes = File.ReadAllBytes(Real);
        var other = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? (byte)62 : (byte)183;
        (bytes[18], bytes[19]) = (other, 0);
        File.WriteAllBytes(In("libquoit.so"), bytes);
        return In("libquoit.so");
    }

    [Theory]
    [InlineData("another processor", "It is for ", "take the libquoit for that")]
    [InlineData("musl", "It is for musl, and this process runs on glibc", "take the libquoit for that")]
    [InlineData("a newer glibc", "GLIBC_2.99", "This system's glibc is too old for it")]
    public async Task A_library_that_does_not_fit_is_explained(string kind, string what, string detail)
    {
        var library = kind switch
        {
            "musl" => Needing("libc.so"),
            "a newer glibc" => Needing("libc.so.6", "GLIBC_2.99 { needed; };"),
            _ => ForAnotherProcessor(),
        };
        await Serves_by_sockets(new() { ["QUOIT_LIBRARY"] = library }, "", library, what, detail, "package libquoit0");
    }

    private static async Task Serves_by_sockets(Dictionary<string, string?> environment, string through, params string[] wanted)
    {
        await using var child = await Child.StartAsync("serve", environment, through: through);
        Assert.Contains("hello", await BadInputScenarios.GetAsync(child.Port), StringComparison.Ordinal);
        var line = Assert.Single(BadInputScenarios.Complaints(child));
        Assert.StartsWith("Warning 2 LeftToSockets", line, StringComparison.Ordinal);
        foreach (var text in wanted)
        {
            Assert.Contains(text, line, StringComparison.Ordinal);
        }
    }

    [Theory]
    [InlineData("noexec", "Its folder is mounted noexec")]
    [InlineData("ro,noexec", "Its folder is mounted noexec")]
    public async Task A_folder_that_nothing_is_run_from_is_named(string options, string complaint)
    {
        var library = In("libquoit.so");
        // What is mounted is gone with the process.
        var writable = options.Replace("ro,", "", StringComparison.Ordinal);
        var script = $"mount -t tmpfs -o {writable} none {_folder} && cp {Real} {library} && mount -o remount,{options} {_folder}";
        const string Alone = "unshare --mount --map-root-user sh -c ";
        using (var tried = Process.Start("/bin/sh", ["-c", $"{Alone}'{script}'"]))
        {
            await tried.WaitForExitAsync();
            if (tried.ExitCode != 0)
            {
                return; // Nothing can be mounted here.
            }
        }
        await Serves_by_sockets(
            new() { ["QUOIT_LIBRARY"] = library }, $"{Alone}'{script} && exec \"$@\"' --", library, complaint, "package libquoit0");
    }

    [Fact]
    public async Task A_read_only_folder_does_not_matter()
    {
        var script = $"mount -t tmpfs none {_folder} && cp {Real} {In("libquoit.so")} && mount -o remount,ro {_folder}";
        const string Alone = "unshare --mount --map-root-user sh -c ";
        using (var tried = Process.Start("/bin/sh", ["-c", $"{Alone}'{script}'"]))
        {
            await tried.WaitForExitAsync();
            if (tried.ExitCode != 0)
            {
                return;
            }
        }
        await using var child = await Child.StartAsync(
            "serve", new() { ["QUOIT_LIBRARY"] = In("libquoit.so") }, through: $"{Alone}'{script} && exec \"$@\"' --");
        Assert.Contains("hello", await BadInputScenarios.GetAsync(child.Port), StringComparison.Ordinal);
        Assert.Empty(BadInputScenarios.Complaints(child));
    }

    /// <summary>One of another version is loaded before, whose functions end the process: nothing of it is used.</summary>
    [Fact]
    public async Task Another_libquoit_in_the_process_is_not_touched()
    {
        string[] names = ["abi_check", "version", "layout", "loop_create", "turn", "error_text", "config_default", "socket_bind", "listen"];
        var other = In("libquoit.so.0");
        OtherLibrary.Compile(
            other,
            "#include <stdlib.h>\n" + string.Concat(names.Select(name => $"void quoit_{name}(void) {{ abort(); }}\n")),
            "-Wl,-soname,libquoit.so.0");
        await using var child = await Child.StartAsync("serve", new() { ["QUOIT_LIBRARY"] = Real, ["LD_PRELOAD"] = other });
        Assert.Contains("hello", await BadInputScenarios.GetAsync(child.Port), StringComparison.Ordinal);
        Assert.Empty(BadInputScenarios.Complaints(child));
        Assert.Contains(other, await File.ReadAllTextAsync($"/proc/{child.Id}/maps"), StringComparison.Ordinal);
    }

    private static byte[] Library(byte bits, ushort machine, string needed)
    {
        var bytes = new byte[128];
        "\u007fELF"u8.CopyTo(bytes);
        (bytes[4], bytes[5], bytes[18], bytes[19]) = (bits, 1, (byte)machine, (byte)(machine >> 8));
        System.Text.Encoding.ASCII.GetBytes($"\0{needed}\0").CopyTo(bytes, 64);
        return bytes;
    }

    [Theory]
    [InlineData(1, 3, "libc.so.6", false, "", "not for a 64-bit processor")]
    [InlineData(2, 183, "libc.so.6", false, "", "It is for Arm64, and this process is for X64")]
    [InlineData(2, 22, "libc.so.6", false, "", "ELF's machine 22")]
    [InlineData(2, 62, "libc.so", false, "", "It is for musl")]
    [InlineData(2, 62, "libc.so.6", true, "", "It is for glibc, and this process runs on musl")]
    [InlineData(2, 62, "libc.so.6", false, "version `GLIBC_2.99' not found", "glibc is too old")]
    [InlineData(2, 62, "libc.so.6", false, "failed to map segment from shared object", "noexec")]
    [InlineData(2, 62, "libc.so.6", false, "undefined symbol", "")]
    [InlineData(2, 62, "libc.so", true, "", "")]
    public void Whatever_a_header_tells_is_told(byte bits, int machine, string needed, bool onMusl, string reason, string wanted)
    {
        var found = Misfit.Of(Library(bits, (ushort)machine, needed), reason, Architecture.X64, onMusl);
        Assert.Equal(wanted.Length == 0, found.Length == 0);
        Assert.Contains(wanted, found, StringComparison.Ordinal);
        Assert.Equal("", Misfit.Of("no library at all, but sixty-four bytes of text, and a few more of them"u8, "invalid", Architecture.X64, onMusl));
    }
}
