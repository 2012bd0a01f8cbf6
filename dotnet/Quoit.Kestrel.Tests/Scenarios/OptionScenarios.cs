using System.Diagnostics;
using System.IO.Pipelines;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Options that hold for sockets and threads, as the kernel has them.</summary>
public class OptionScenarios
{
    public static TheoryData<Transport> Engines => Transports.Engines;

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Those_of_sockets_hold_for_each_connection(Transport transport)
    {
        var seen = new TaskCompletionSource<(bool NoDelay, bool KeepAlive, int Idle, int Between)>();
        await using var server = await TestServer.RawAsync(
            transport,
            connection =>
            {
                var socket = connection.Features.Get<IConnectionSocketFeature>()!.Socket;
                int Option(SocketOptionLevel level, SocketOptionName name) => (int)socket.GetSocketOption(level, name)!;
                seen.SetResult((
                    socket.NoDelay,
                    Option(SocketOptionLevel.Socket, SocketOptionName.KeepAlive) != 0,
                    Option(SocketOptionLevel.Tcp, SocketOptionName.TcpKeepAliveTime),
                    Option(SocketOptionLevel.Tcp, SocketOptionName.TcpKeepAliveInterval)));
                return Task.CompletedTask;
            },
            options =>
            {
                options.NoDelay = false;
                options.KeepAlive = TimeSpan.FromSeconds(90);
            });
        using var client = await Client.ConnectAsync(server.EndPoint);
        Assert.Equal((false, true, 90, 90), await seen.Task.Soon());
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Loops_that_are_pinned_and_spin_have_a_processor_each_and_serve(Transport transport)
    {
        await using var server = await TestServer.RawAsync(
            transport,
            static connection => connection.Transport.Input.CopyToAsync(connection.Transport.Output),
            options =>
            {
                options.PinLoops = true;
                options.SpinBudget = TimeSpan.FromMilliseconds(1);
            });
        using (var client = await Client.ConnectAsync(server.EndPoint))
        {
            await client.SendAsync(Pattern.Bytes(100_000));
            Pattern.Check(await client.ReceiveAsync(100_000), 0);
        }
        var allowed = new List<string>();
        foreach (var loop in server.Loops!.Loops)
        {
            var answer = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
            loop.Schedule(
                _ => answer.SetResult(File.ReadLines("/proc/thread-self/status").Single(line => line.StartsWith("Cpus_allowed_list:", StringComparison.Ordinal))),
                null);
            allowed.Add((await answer.Task.Soon()).Split(':')[1].Trim());
        }
        Assert.All(allowed, processors => Assert.Matches(@"^\d+$", processors));
        Assert.Equal(Math.Min(allowed.Count, Environment.ProcessorCount), allowed.Distinct().Count());
    }

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Loops_that_coalesce_events_serve_and_keep_a_peer_waiting_that_waits_for_its_answer(Transport transport)
    {
        const int Late = 5;
        // The longest there is: without it a request takes a part of a millisecond.
        var time = TimeSpan.FromMilliseconds(100);
        await using var server = await TestServer.HttpAsync(
            transport,
            static application => application.MapGet("/", static () => "hello"),
            options: options => options.CoalesceTime = time);
        using var client = new HttpClient();
        Assert.Equal("hello", await client.GetStringAsync(server.Address, Wait.Token));
        // The loop sleeps when the answer has left, and again while the application makes it. Either may be missed by a loop that
        // was late to sleep, as often as the machine is busy.
        var late = 0;
        var end = Stopwatch.StartNew();
        while (late < Late)
        {
            Assert.True(end.Elapsed < Wait.Limit, $"{late} requests took {time} or more");
            var watch = Stopwatch.StartNew();
            Assert.Equal("hello", await client.GetStringAsync(server.Address, Wait.Token));
            late += watch.Elapsed >= time ? 1 : 0;
        }
    }

    public static TheoryData<string, string> RangeEnds => new()
    {
        { "Backlog", "1" }, { "Backlog", "2147483647" }, { "KeepAlive", "00:00:01" }, { "KeepAlive", "09:06:07" },
        { "Connections", "1" }, { "ReceiveSlots", "1" }, { "ReceiveSlots", "3" }, { "ReceiveSlots", "32768" },
        { "ReceiveSlotSize", "64" }, { "ReceiveSlotSize", "16777216" }, { "LeasesPerConnection", "1" },
        { "LeasesPerConnection", "32768" }, { "MaxReadBufferSize", "1" }, { "MaxReadBufferSize", "9223372036854775807" },
        { "MaxWriteBufferSize", "1" }, { "MaxWriteBufferSize", "9223372036854775807" }, { "SpinBudget", "00:00:01" },
        { "CoalesceTime", "00:00:00.000001" }, { "DrainDeadline", "00:00:00.0000001" }, { "DrainDeadline", "1.00:00:00" },
        { "BlockedLoopLimit", "00:00:00.0000001" }, { "BlockedLoopLimit", "1.00:00:00" },
    };

    [Theory]
    [MemberData(nameof(RangeEnds))]
    public async Task Whatever_is_in_range_serves(string name, string value)
    {
        foreach (var engine in Transports.UsableEngines)
        {
            var transport = new Transport($"quoit-{engine}", engine, Inline: false, Tiny: false);
            await using var server = await TestServer.StartAsync(
                transport,
                static kestrel => kestrel.Listen(IPAddress.Loopback, 0, static listening => listening.Run(
                    static connection => connection.Transport.Input.CopyToAsync(connection.Transport.Output))),
                null,
                static options => options.Loops = 1,
                services => services.AddSingleton<IConfiguration>(new ConfigurationBuilder()
                    .AddInMemoryCollection(new Dictionary<string, string?> { [$"Kestrel:Quoit:{name}"] = value }).Build()));
            for (var round = 0; round < 2; round++)
            {
                using var client = await Client.ConnectAsync(server.EndPoint);
                await client.SendAsync(Pattern.Bytes(20_000));
                Pattern.Check(await client.ReceiveAsync(20_000), 0);
                client.EndSending();
                Assert.Empty(await client.ReceiveToEndAsync());
            }
            await LoopState.NothingLeftAsync(server.Loops!);
        }
    }
}
