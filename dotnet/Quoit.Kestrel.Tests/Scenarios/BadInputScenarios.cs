using System.Net;
using System.Net.Sockets;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What is missing or denied: one line that names it and the remedy, and an application that works all the
/// same unless Quoit is required.</summary>
public class BadInputScenarios
{
    internal static async Task<string> GetAsync(int port, string path = "/")
    {
        using var client = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, port));
        await client.SendAsync($"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        return await client.ReceiveTextToEndAsync();
    }

    /// <summary>The lines of the log that are warnings or worse.</summary>
    internal static List<string> Complaints(Child child) =>
        [.. child.Output.Split('\n').Where(line => line.StartsWith("Warning", StringComparison.Ordinal) || line.StartsWith("Error", StringComparison.Ordinal) || line.StartsWith("Critical", StringComparison.Ordinal))];

    public static TheoryData<string, string> Libraries => new()
    {
        { "/nowhere/libquoit.so", "named by QUOIT_LIBRARY, cannot be loaded" },
        { "libc.so.6", "is not a libquoit that this assembly can use" },
    };

    [Theory]
    [MemberData(nameof(Libraries))]
    public async Task A_library_that_is_missing_or_another_leaves_sockets_in_charge(string library, string complaint)
    {
        await using var child = await Child.StartAsync("serve", new() { ["QUOIT_LIBRARY"] = library });
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
        Assert.Contains("self: hello", await GetAsync(child.Port, "/self"), StringComparison.Ordinal);
        var line = Assert.Single(Complaints(child));
        Assert.StartsWith("Warning 2 LeftToSockets", line, StringComparison.Ordinal);
        Assert.Contains(library, line, StringComparison.Ordinal);
        Assert.Contains(complaint, line, StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Libraries))]
    public async Task A_library_that_is_missing_or_another_fails_the_start_where_it_is_required(string library, string complaint)
    {
        foreach (var (name, value) in new[] { ("Kestrel__Quoit__Require", "true"), ("Kestrel__Quoit__Engine", "Epoll") })
        {
            await using var child = await Child.StartAsync("serve", new() { ["QUOIT_LIBRARY"] = library, [name] = value });
            Assert.Equal(0, child.Port);
            var line = Assert.Single(child.Output.Split('\n'), line => line.StartsWith("failed: ", StringComparison.Ordinal));
            Assert.StartsWith("failed: QuoitUnavailableException: ", line, StringComparison.Ordinal);
            Assert.Contains(complaint, line, StringComparison.Ordinal);
        }
    }

    /// <summary>How another version's library would differ, in C, and what is said of it.</summary>
    public static TheoryData<string, string, string> OtherVersions => new()
    {
        // Asked for what comes after its own major version.
        {
            "#define VERSION(asked) ((asked) + 0x10000)",
            "cannot be used by Quoit.Kestrel ", $"this program wants version 2.{QuoitLibrary.AbiVersion & 0xffff} of Quoit's C ABI, but libquoit "
        },
        // Asked for what comes after its own minor version.
        { "#define VERSION(asked) ((asked) + 1)", "cannot be used by Quoit.Kestrel ", "of Quoit's C ABI, but libquoit " },
        // Of a structure that this assembly reads it has another field where one should be.
        {
            "#define LINE \"field quoit_event lease 48\"",
            "is libquoit of another version: ", "its layout lacks \"field quoit_event lease 48 8\". Install the one of this package"
        },
    };

    [Theory]
    [MemberData(nameof(OtherVersions))]
    public async Task A_libquoit_of_another_version_is_named_with_what_differs(string difference, string complaint, string detail)
    {
        var library = OtherLibrary.Build(difference);
        try
        {
            await using var serves = await Child.StartAsync("serve", new() { ["QUOIT_LIBRARY"] = library });
            Assert.Contains("hello", await GetAsync(serves.Port), StringComparison.Ordinal);
            var warning = Assert.Single(Complaints(serves));
            Assert.StartsWith("Warning 2 LeftToSockets", warning, StringComparison.Ordinal);
            await using var fails = await Child.StartAsync(
                "serve", new() { ["QUOIT_LIBRARY"] = library, ["Kestrel__Quoit__Require"] = "true" });
            Assert.Equal(0, fails.Port);
            var failure = Assert.Single(fails.Output.Split('\n'), text => text.StartsWith("failed: ", StringComparison.Ordinal));
            Assert.StartsWith("failed: QuoitUnavailableException: ", failure, StringComparison.Ordinal);
            foreach (var text in new[] { warning, failure })
            {
                Assert.Contains($"{library} {complaint}", text, StringComparison.Ordinal);
                Assert.Contains(detail, text, StringComparison.Ordinal);
                Assert.Contains("nstall ", text, StringComparison.Ordinal);
            }
        }
        finally
        {
            File.Delete(library);
        }
    }

    [Fact]
    public async Task No_library_anywhere_names_the_places()
    {
        var here = Path.Combine(AppContext.BaseDirectory, "libquoit.so");
        if (File.Exists(here))
        {
            return;
        }
        await using var child = await Child.StartAsync("serve", new() { ["QUOIT_LIBRARY"] = null, ["LD_LIBRARY_PATH"] = null });
        var text = child.Output;
        if (text.Contains("Started", StringComparison.Ordinal))
        {
            return; // It is installed on this machine.
        }
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
        var line = Assert.Single(Complaints(child));
        Assert.Contains(here, line, StringComparison.Ordinal);
        Assert.Contains("QUOIT_LIBRARY", line, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Where_io_uring_is_denied_epoll_runs_and_the_log_says_why()
    {
        await using var child = await Child.StartAsync("deny", []);
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
        Assert.Empty(Complaints(child));
        var line = Assert.Single(child.Output.Split('\n'), line => line.StartsWith("Information 1 Started", StringComparison.Ordinal));
        Assert.Contains("on Epoll: ", line, StringComparison.Ordinal);
        Assert.Contains("io_uring", line, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Where_io_uring_is_denied_and_required_the_start_fails_with_the_remedy()
    {
        await using var child = await Child.StartAsync("deny", new() { ["Kestrel__Quoit__Engine"] = "IoUring" });
        Assert.Equal(0, child.Port);
        var line = Assert.Single(child.Output.Split('\n'), line => line.StartsWith("failed: ", StringComparison.Ordinal));
        Assert.StartsWith("failed: QuoitUnavailableException: ", line, StringComparison.Ordinal);
        Assert.Contains("io_uring", line, StringComparison.Ordinal);
    }

    /// <summary>Serves by more loops than locked memory has rings for; null where that limit does not hold.</summary>
    private static async Task<Child?> StartWithLittleLockedMemoryAsync(string engine, int loops)
    {
        // Root may lock what it likes, unless it is started without that right.
        var through = Environment.IsPrivilegedProcess ? "setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock" : "";
        var child = await Child.StartAsync(
            "serve",
            new() { ["Kestrel__Quoit__Engine"] = engine, ["Kestrel__Quoit__Loops"] = $"{loops}" },
            "ulimit -l 512;",
            through);
        if (child.Output.Contains("on IoUring", StringComparison.Ordinal))
        {
            // The kernels of some years do not count rings as locked memory.
            await child.DisposeAsync();
            return null;
        }
        return child;
    }

    private const int TooManyLoops = 32;

    private static void NamesTheLimitAndTheRemedy(string line)
    {
        Assert.Contains("RLIMIT_MEMLOCK", line, StringComparison.Ordinal);
        Assert.Contains("512 KiB", line, StringComparison.Ordinal);
        Assert.Contains("ulimit -l", line, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Where_locked_memory_is_short_of_all_loops_they_run_on_epoll_and_the_log_says_why()
    {
        if (!Transports.UsableEngines.Contains(QuoitEngine.IoUring)
            || await StartWithLittleLockedMemoryAsync("Auto", TooManyLoops) is not { } child)
        {
            return;
        }
        await using (child)
        {
            Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
            Assert.Empty(Complaints(child));
            var line = Assert.Single(child.Output.Split('\n'), line => line.StartsWith("Information 1 Started", StringComparison.Ordinal));
            Assert.Contains($"runs {TooManyLoops} loop(s) on Epoll: ", line, StringComparison.Ordinal);
            NamesTheLimitAndTheRemedy(line);
        }
    }

    [Fact]
    public async Task Where_locked_memory_is_short_of_all_loops_and_io_uring_is_required_the_start_fails_with_the_remedy()
    {
        if (!Transports.UsableEngines.Contains(QuoitEngine.IoUring)
            || await StartWithLittleLockedMemoryAsync("IoUring", TooManyLoops) is not { } child)
        {
            return;
        }
        await using (child)
        {
            Assert.Equal(0, child.Port);
            var line = Assert.Single(child.Output.Split('\n'), line => line.StartsWith("failed: ", StringComparison.Ordinal));
            Assert.StartsWith("failed: QuoitUnavailableException: ", line, StringComparison.Ordinal);
            NamesTheLimitAndTheRemedy(line);
        }
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public Task Without_address_space_for_its_memory_a_start_fails_with_the_remedy_and_the_process_goes_on(string engine) =>
        StarveAsync($"{engine} 24", []);

    [Theory]
    [MemberData(nameof(Engines))]
    public Task Without_address_space_for_its_thread_a_start_fails_with_the_remedy_and_the_process_goes_on(string engine) =>
        // In hexadecimal: a gibibyte for the stack of each thread, where a loop's memory takes a tenth of it.
        StarveAsync($"{engine} 500", new() { ["DOTNET_Thread_DefaultStackSize"] = "40000000" });

    private static async Task StarveAsync(string arguments, Dictionary<string, string?> environment)
    {
        await using var child = await Child.StartAsync($"starve {arguments}", environment);
        var lines = child.Output.Split('\n');
        Assert.True(lines.Length == 3 && lines[0] == "bound" && lines[2] == "bound", child.Output);
        Assert.StartsWith("QuoitUnavailableException: ", lines[1], StringComparison.Ordinal);
        Assert.Contains("memory", lines[1], StringComparison.Ordinal);
        Assert.Contains("run fewer loops", lines[1], StringComparison.Ordinal);
    }

    [Fact]
    public async Task On_one_processor_there_is_one_loop()
    {
        await using var child = await Child.StartAsync("serve", new() { ["DOTNET_PROCESSOR_COUNT"] = "1" });
        Assert.Contains("Quoit runs 1 loop(s)", child.Output, StringComparison.Ordinal);
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task On_one_processor_what_a_handler_has_flushed_is_sent_though_it_blocks(string engine)
    {
        await using var child = await Child.StartAsync(
            "serve", new() { ["DOTNET_PROCESSOR_COUNT"] = "1", ["Kestrel__Quoit__Engine"] = engine });
        using var held = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, child.Port));
        await held.SendAsync("GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        var text = "";
        while (!text.Contains("held", StringComparison.Ordinal))
        {
            text += (char)Assert.Single(await held.ReceiveAsync(1));
        }
        Assert.Contains("released", await GetAsync(child.Port, "/release"), StringComparison.Ordinal);
        Assert.Contains(" and released", await held.ReceiveTextToEndAsync(), StringComparison.Ordinal);
    }

    /// <summary>The handler blocks until the loop has said what its socket is, and no other thread is there to wake the loop.</summary>
    [Fact]
    public async Task With_a_single_thread_a_handler_may_ask_for_its_socket()
    {
        await AreGreetedAsync("sockets greet", "Auto");
        foreach (var engine in Transports.UsableEngines)
        {
            await AreGreetedAsync("serve greet", $"{engine}");
        }
    }

    private static async Task AreGreetedAsync(string part, string engine)
    {
        await using var child = await Child.StartAsync(
            part,
            new()
            {
                ["Kestrel__Quoit__Engine"] = engine,
                ["DOTNET_PROCESSOR_COUNT"] = "1",
                ["DOTNET_ThreadPool_ForceMinWorkerThreads"] = "1",
                ["DOTNET_ThreadPool_ForceMaxWorkerThreads"] = "1",
            });
        // The loop may not have fallen asleep yet when the first asks.
        for (var number = 0; number < 10; number++)
        {
            using var client = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, child.Port));
            Assert.Equal("welcome, with NoDelay True", await client.ReceiveTextToEndAsync());
        }
    }

    public static TheoryData<string> Engines => [.. Transports.UsableEngines.Select(engine => engine.ToString())];

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Without_descriptors_left_accepting_waits_and_goes_on_with_the_first_that_is_free(string engine)
    {
        await using var child = await Child.StartAsync(
            "serve",
            new()
            {
                ["Kestrel__Quoit__Engine"] = engine,
                ["Kestrel__Quoit__Loops"] = "1",
                // The runtime itself ends where it has no descriptor to load code or to start a thread with (it opens a pipe
                // for each): it loads what is needed before, and the first request starts the pool's only thread.
                ["DOTNET_TieredCompilation"] = "0",
                ["DOTNET_EnableWriteXorExecute"] = "0",
                ["DOTNET_ThreadPool_ForceMinWorkerThreads"] = "1",
                ["DOTNET_ThreadPool_ForceMaxWorkerThreads"] = "1",
            },
            "ulimit -n 260;");
        var clients = new List<Client>();
        for (var number = 0; number < 50; number++)
        {
            clients.Add(await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, child.Port)));
        }
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
        clients.ForEach(client => client.Dispose());
        clients.Clear();
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
        for (var number = 0; number < 300; number++)
        {
            clients.Add(await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, child.Port)));
        }
        await Wait.Until(() => Descriptors(child.Id) >= 258, () => $"it has {Descriptors(child.Id)} descriptors");
        // That the loop does not spin meanwhile is shown by the core's counters, in its own tests.
        clients.ForEach(client => client.Dispose());
        Assert.Contains("hello", await GetAsync(child.Port), StringComparison.Ordinal);
    }

    private static int Descriptors(int process) => Directory.GetFileSystemEntries($"/proc/{process}/fd").Length;
}
