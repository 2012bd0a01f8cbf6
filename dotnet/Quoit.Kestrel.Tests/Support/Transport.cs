using Microsoft.AspNetCore.Hosting;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A transport that scenarios run over. That of sockets is the oracle: a scenario must pass there first.</summary>
public sealed record Transport(string Name, QuoitEngine? Engine, bool Inline, bool Tiny)
{
    public override string ToString() => Name;

    /// <summary>Whether it is Quoit's.</summary>
    public bool IsQuoit => Engine is not null;

    public void Use(IWebHostBuilder builder, Action<QuoitTransportOptions>? configure)
    {
        if (!IsQuoit)
        {
            builder.UseSockets();
            return;
        }
        builder.UseQuoit(options =>
        {
            Configure(options);
            configure?.Invoke(options);
        });
    }

    public void Configure(QuoitTransportOptions options)
    {
        options.Engine = Engine!.Value;
        options.Scheduling = Inline ? QuoitScheduling.UnsafeInlineOnLoop : QuoitScheduling.ThreadPool;
        options.Loops = 2;
        if (Tiny)
        {
            options.Loops = 1;
            options.ReceiveSlots = 8;
            options.ReceiveSlotSize = 128;
            options.LeasesPerConnection = 2;
            options.SendChunks = 2;
        }
    }
}

/// <summary>The transports, for theories.</summary>
public static class Transports
{
    /// <summary>The engines that run here; before what is made of them.</summary>
    public static QuoitEngine[] UsableEngines { get; } =
        QuoitDoctor.Examine().IoUring ? [QuoitEngine.IoUring, QuoitEngine.Epoll] : [QuoitEngine.Epoll];

    private static readonly Transport s_sockets = new("sockets", null, false, false);

    private static readonly Transport[] s_quoit = [.. Quoits()];

    /// <summary>The same as <see cref="All"/>, for theories that have another argument.</summary>
    internal static IEnumerable<Transport> Each => [s_sockets, .. s_quoit];

    /// <summary>All, and the oracle.</summary>
    public static TheoryData<Transport> All => [s_sockets, .. s_quoit];

    /// <summary>Quoit's with pools of the usual size, and the oracle.</summary>
    public static TheoryData<Transport> Normal => [s_sockets, .. s_quoit.Where(transport => !transport.Tiny)];

    /// <summary>Quoit's alone.</summary>
    public static TheoryData<Transport> Quoit => [.. s_quoit];

    /// <summary>Quoit's with pools of the usual size.</summary>
    public static TheoryData<Transport> QuoitNormal => [.. s_quoit.Where(transport => !transport.Tiny)];

    /// <summary>Quoit's with handlers on the loop and pools of the usual size.</summary>
    public static TheoryData<Transport> QuoitInline => [.. s_quoit.Where(transport => transport.Inline && !transport.Tiny)];

    /// <summary>One of each engine, on the thread pool.</summary>
    public static TheoryData<Transport> Engines => [.. s_quoit.Where(transport => !transport.Tiny && !transport.Inline)];

    /// <summary>Runs a scenario over all of them at once, for one that spends its time on waiting for Kestrel's own limits; a
    /// failure names the transport.</summary>
    internal static Task AtOnceAsync(Func<Transport, Task> scenario) => Task.WhenAll(Each.Select(async transport =>
    {
        try
        {
            await scenario(transport).Soon();
        }
        catch (Exception failure)
        {
            throw new InvalidOperationException($"Over {transport}: {failure.Message}", failure);
        }
    }));

    private static IEnumerable<Transport> Quoits()
    {
        foreach (var engine in UsableEngines)
        {
            foreach (var inline in new[] { false, true })
            {
                foreach (var tiny in new[] { false, true })
                {
                    var name = $"quoit-{engine}{(inline ? "-inline" : "")}{(tiny ? "-tiny" : "")}".ToLowerInvariant();
                    yield return new Transport(name, engine, inline, tiny);
                }
            }
        }
    }
}
