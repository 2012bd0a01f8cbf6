using System.Diagnostics;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>
/// Makes a libquoit of another version: the one that is tested, behind a library that passes on the calls by which a
/// version is told. It takes the C compiler that Rust links with.
/// </summary>
internal static class OtherLibrary
{
    /// <summary>The calls that come before a library is taken for usable, passed on to the one at <c>REAL</c>.</summary>
    private const string Source = """
        #include <dlfcn.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <string.h>
        DIFFERENCE
        #ifndef VERSION
        #define VERSION(asked) (asked)
        #endif
        #define PASS_ON(result, name, types) \
            ((result (*) types) dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), #name))
        int quoit_abi_check(uint32_t asked) { return PASS_ON(int, quoit_abi_check, (uint32_t))(VERSION(asked)); }
        int quoit_error_text(char *buffer, size_t room) {
            return PASS_ON(int, quoit_error_text, (char *, size_t))(buffer, room);
        }
        const char *quoit_version(void) { return PASS_ON(const char *, quoit_version, (void))(); }
        const char *quoit_layout(void) {
            char *layout = strdup(PASS_ON(const char *, quoit_layout, (void))());
        #ifdef LINE
            char *line = strstr(layout, LINE);
            if (line != NULL)
                line[strlen(LINE) - 1] ^= 1;
        #endif
            return layout;
        }
        """;

    /// <summary>Builds one into a file of its own, which the caller deletes.</summary>
    /// <param name="difference">Defines <c>VERSION(asked)</c>, what it takes the version for that it is asked about, or
    /// <c>LINE</c>, whose last character it has changed in its layout.</param>
    public static string Build(string difference)
    {
        var path = Path.Combine(Path.GetTempPath(), $"libquoit-{Guid.NewGuid():N}.so");
        var real = Path.GetFullPath(QuoitLibrary.Load().Path);
        Compile(path, Source.Replace("DIFFERENCE", difference, StringComparison.Ordinal), $"-DREAL=\"{real}\"", "-ldl");
        return path;
    }

    /// <summary>Compiles a shared library of C.</summary>
    public static void Compile(string path, string source, params string[] options)
    {
        var start = new ProcessStartInfo("cc") { RedirectStandardInput = true, RedirectStandardError = true };
        string[] arguments = ["-shared", "-fPIC", "-o", path, "-x", "c", "-", "-x", "none", .. options];
        foreach (var argument in arguments)
        {
            start.ArgumentList.Add(argument);
        }
        using var compiler = Process.Start(start)!;
        compiler.StandardInput.Write(source);
        compiler.StandardInput.Close();
        var said = compiler.StandardError.ReadToEnd();
        compiler.WaitForExit();
        Assert.True(compiler.ExitCode == 0, said);
    }
}
