using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using System.Net;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>
/// The processes that tests start: this assembly, with <c>serve</c> for a server that is configured by the environment,
/// <c>sockets</c> for the same without Quoit, <c>systemd</c> for one on the sockets that systemd hands over, <c>deny</c> for
/// the first in a process that may not use io_uring, or <c>starve ENGINE MIB</c> for loops that are started where no more
/// address space is left than that. Behind one that serves, <c>greet</c> has it greet on bare connections. Each line of the log goes to standard output; it serves until its standard input ends.
/// </summary>
internal sealed partial class Child : IAsyncDisposable
{
    private static readonly ConcurrentDictionary<string, ValueTuple> InheritedOnPurpose = new();

    private readonly Process _process;
    private readonly List<string> _lines = [];

    private Child(Process process) => _process = process;

    public string Output => string.Join('\n', _lines);

    public int Id => _process.Id;

    public int Port { get; private set; }

    /// <summary>Starts one and waits until it serves, or has ended because it could not.</summary>
    /// <param name="part">What it is to play.</param>
    /// <param name="environment">Variables of its environment; those that are null are taken from it.</param>
    /// <param name="limits">Commands of a shell that it is started behind, as <c>ulimit -n 260;</c>.</param>
    /// <param name="through">A command that starts it, as <c>setpriv</c> does; empty for none.</param>
    public static async Task<Child> StartAsync(
        string part, Dictionary<string, string?> environment, string limits = "", string through = "")
    {
        var dotnet = Environment.ProcessPath!;
        if (Path.GetFileNameWithoutExtension(dotnet) != "dotnet")
        {
            dotnet = "dotnet";
        }
        var start = new ProcessStartInfo("/bin/sh")
        {
            RedirectStandardOutput = true,
            RedirectStandardInput = true,
            RedirectStandardError = true,
            ArgumentList = { "-c", $"{limits} exec {through} \"$0\" exec \"$1\" {part} 2>&1", dotnet, typeof(Child).Assembly.Location },
        };
        foreach (var (name, value) in environment)
        {
            start.Environment[name] = value;
        }
        var child = new Child(Process.Start(start)!);
        while (await child._process.StandardOutput.ReadLineAsync(Wait.Token) is { } line)
        {
            child._lines.Add(line);
            if (line.StartsWith("listening on ", StringComparison.Ordinal))
            {
                child.Port = new Uri(line["listening on ".Length..]).Port;
                break;
            }
        }
        return child;
    }

    /// <summary>The number under which children have a socket of this process, who by themselves would have none.</summary>
    public static int Inherited(System.Net.Sockets.Socket socket)
    {
        const int SetDescriptorFlags = 2;
        var descriptor = (int)socket.Handle;
        InheritedOnPurpose.TryAdd(new FileInfo($"/proc/self/fd/{descriptor}").LinkTarget!, default);
        Assert.Equal(0, Fcntl(descriptor, SetDescriptorFlags, 0));
        return descriptor;
    }

    /// <summary>Whether a child's descriptor with this target in <c>/proc</c> is one that a test has let all children have.</summary>
    public static bool IsInheritedOnPurpose(string target) => InheritedOnPurpose.ContainsKey(target);

    /// <summary>Ends it as the kernel does: nothing of it runs any more.</summary>
    public async Task KillAsync()
    {
        Port = 0;
        _process.Kill();
        await _process.WaitForExitAsync(Wait.Token);
    }

    /// <summary>Ends it; one that served and did not end in order, as a runtime that aborts does not, fails the test.</summary>
    public async ValueTask DisposeAsync()
    {
        try
        {
            _process.StandardInput.Close();
            var rest = await _process.StandardOutput.ReadToEndAsync(Wait.Token);
            await _process.WaitForExitAsync(Wait.Token);
            Assert.True(
                Port == 0 || _process.ExitCode == 0,
                $"the server ended with status {_process.ExitCode} and said:\n{Output}\n{rest}");
        }
        finally
        {
            if (!_process.HasExited)
            {
                _process.Kill();
            }
            _process.Dispose();
        }
    }

    public static async Task<int> RunAsync(string[] arguments)
    {
        if (arguments is ["deny"])
        {
            Deny();
        }
        try
        {
            if (arguments is ["starve", var engine, var mebibytes])
            {
                await StarveAsync(Enum.Parse<QuoitEngine>(engine), ulong.Parse(mebibytes, CultureInfo.InvariantCulture) << 20);
                return 0;
            }
            await ServeAsync(arguments is ["systemd", ..], arguments is not ["sockets", ..], arguments is [_, "greet"]);
            return 0;
        }
        catch (Exception failure)
        {
            Console.WriteLine($"failed: {failure.GetType().Name}: {failure.Message}");
            return 1;
        }
    }

    /// <summary>Binds with enough address space, with so much that is left, and with enough again.</summary>
    private static async Task StarveAsync(QuoitEngine engine, ulong left)
    {
        await BindAsync(engine);
        LimitAddressSpace(AddressSpace() + left);
        await BindAsync(engine);
        LimitAddressSpace(ulong.MaxValue);
        await BindAsync(engine);
    }

    private static async Task BindAsync(QuoitEngine engine)
    {
        try
        {
            var options = new QuoitTransportOptions { Engine = engine, Loops = 4 };
            await using var factory = new QuoitTransportFactory(Options.Create(options));
            await using var listener = await factory.BindAsync(new IPEndPoint(IPAddress.Loopback, 0));
            Console.WriteLine("bound");
        }
        catch (Exception failure)
        {
            Console.WriteLine($"{failure.GetType().Name}: {failure.Message}");
        }
    }

    /// <summary>Says what the socket of the connection is set to, without a byte from its client.</summary>
    private static async Task GreetAsync(ConnectionContext connection)
    {
        var socket = connection.Features.Get<IConnectionSocketFeature>()!.Socket;
        await connection.Transport.Output.WriteAsync(Encoding.Latin1.GetBytes($"welcome, with NoDelay {socket.NoDelay}"));
    }

    private static async Task ServeAsync(bool systemd, bool quoit, bool greet)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders().AddProvider(new ConsoleLines());
        if (quoit)
        {
            builder.WebHost.UseQuoit();
        }
        builder.WebHost.ConfigureKestrel(kestrel =>
        {
            if (systemd)
            {
                kestrel.UseSystemd();
            }
            else if (greet)
            {
                kestrel.Listen(IPAddress.Loopback, 0, static listening => listening.Run(GreetAsync));
            }
            else
            {
                kestrel.Listen(IPAddress.Loopback, 0);
            }
        });
        await using var application = builder.Build();
        application.MapGet("/", static () => "hello");
        if (quoit)
        {
            // As a proxy does that is its own backend.
            application.MapGet("/self", static async (HttpContext context, IConnectionFactory factory) =>
            {
                using var client = new HttpClient(new SocketsHttpHandler().UseQuoit(factory));
                return "self: " + await client.GetStringAsync($"http://localhost:{context.Connection.LocalPort}/");
            });
        }
        // As a handler does that blocks, behind what it has flushed, until somebody who has read that asks for something else.
        using var released = new ManualResetEventSlim();
        application.MapGet("/held", async context =>
        {
            await context.Response.WriteAsync("held");
            await context.Response.Body.FlushAsync();
            await context.Response.WriteAsync(released.Wait(Wait.Limit) ? " and released" : " and left alone");
        });
        // As handlers do whose client does not read, or that read nothing of what it sends.
        application.MapGet("/endless", static async context =>
        {
            while (!context.RequestAborted.IsCancellationRequested)
            {
                await context.Response.Body.WriteAsync(new byte[100_000]);
            }
        });
        // Over sockets nothing holds a paused connection but its handler, and the collector takes both if nothing holds that; a
        // timer does.
        application.MapPost("/deaf", static context => Task.Delay(TimeSpan.FromHours(1), context.RequestAborted));
        application.MapGet("/release", () =>
        {
            released.Set();
            return "released";
        });
        // On a thread of its own: reading the console to its end takes a thread as long as it lasts, and the pool has few in
        // some tests.
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        new Thread(() =>
        {
            Console.In.ReadToEnd();
            ended.SetResult();
        })
        { IsBackground = true }.Start();
        await application.StartAsync();
        Console.WriteLine($"listening on {application.Urls.First()}");
        await ended.Task;
        await application.StopAsync();
    }

    private sealed class ConsoleLines : ILoggerProvider, ILogger
    {
        public ILogger CreateLogger(string categoryName) => this;

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => logLevel >= LogLevel.Information;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            if (IsEnabled(logLevel))
            {
                Console.WriteLine($"{logLevel} {eventId.Id} {eventId.Name}: {formatter(state, exception)}");
            }
        }

        public void Dispose()
        {
        }
    }

    /// <summary>Bytes of address space that this process has.</summary>
    private static ulong AddressSpace() =>
        (ulong)Environment.SystemPageSize * ulong.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[0], CultureInfo.InvariantCulture);

    private static unsafe void LimitAddressSpace(ulong bytes)
    {
        const int AddressSpaceLimit = 9;
        // The present limit, and the highest that it can be raised to again.
        var limits = stackalloc[] { bytes, ulong.MaxValue };
        Assert.Equal(0, SetLimit(AddressSpaceLimit, limits));
    }

    [StructLayout(LayoutKind.Sequential)]
    private struct Filter
    {
        public ushort Code;
        public byte JumpTrue;
        public byte JumpFalse;
        public uint Value;
    }

    [StructLayout(LayoutKind.Sequential)]
    private unsafe struct FilterProgram
    {
        public ushort Length;
        public Filter* Filters;
    }

    [LibraryImport("libc", EntryPoint = "fcntl", SetLastError = true)]
    private static partial int Fcntl(int descriptor, int command, nint flags);

    [LibraryImport("libc", EntryPoint = "setrlimit", SetLastError = true)]
    private static unsafe partial int SetLimit(int resource, ulong* limits);

    [LibraryImport("libc", EntryPoint = "prctl", SetLastError = true)]
    private static partial int Prctl(int option, nuint one, nuint two, nuint three, nuint four);

    [LibraryImport("libc", EntryPoint = "syscall", SetLastError = true)]
    private static unsafe partial long Seccomp(long number, uint operation, uint flags, FilterProgram* program);

    /// <summary>io_uring_setup(2) returns EPERM from now on, in all threads, as container runtimes have it.</summary>
    private static unsafe void Deny()
    {
        const uint LoadWord = 0x20, JumpIfEqual = 0x15, Return = 0x06;
        const uint IoUringSetup = 425, Allow = 0x7fff0000, Error = 0x00050000, NotPermitted = 1;
        var seccomp = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? 277 : 317;
        var filters = stackalloc Filter[]
        {
            new Filter { Code = (ushort)LoadWord, Value = 0 },
            new Filter { Code = (ushort)JumpIfEqual, JumpFalse = 1, Value = IoUringSetup },
            new Filter { Code = (ushort)Return, Value = Error | NotPermitted },
            new Filter { Code = (ushort)Return, Value = Allow },
        };
        var program = new FilterProgram { Length = 4, Filters = filters };
        const int NoNewPrivileges = 38;
        const uint SetModeFilter = 1, AllThreads = 1;
        if (Prctl(NoNewPrivileges, 1, 0, 0, 0) != 0 || Seccomp(seccomp, SetModeFilter, AllThreads, &program) != 0)
        {
            throw new InvalidOperationException($"seccomp is not to be had here: error {Marshal.GetLastPInvokeError()}");
        }
    }
}
