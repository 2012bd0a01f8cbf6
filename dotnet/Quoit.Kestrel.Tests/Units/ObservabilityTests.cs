using System.Diagnostics.Metrics;
using Microsoft.AspNetCore.Builder;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>What can be seen of the loops from outside.</summary>
public class ObservabilityTests
{
    public static TheoryData<Transport> Engines => Transports.Engines;

    [Theory]
    [MemberData(nameof(Engines))]
    public async Task Counters_are_metrics_of_each_loop(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, static application => application.MapGet("/", static () => "hello"));
        using (var client = new HttpClient())
        {
            Assert.Equal("hello", await client.GetStringAsync(server.Address, Wait.Token));
        }
        await LoopState.NothingLeftAsync(server.Loops!);
        var seen = new Dictionary<string, (string? Unit, long Sum, HashSet<object?> Loops, HashSet<object?> Engines)>(StringComparer.Ordinal);
        using var listener = new MeterListener();
        listener.InstrumentPublished = (instrument, listening) =>
        {
            if (instrument.Meter.Name == "Quoit.Transport" && ReferenceEquals(instrument.Meter.Scope, server.Services.GetService(typeof(IMeterFactory))))
            {
                listening.EnableMeasurementEvents(instrument);
            }
        };
        listener.SetMeasurementEventCallback<long>((instrument, value, tags, _) =>
        {
            var entry = seen.GetValueOrDefault(instrument.Name, (instrument.Unit, 0, [], []));
            foreach (var (name, tag) in tags)
            {
                (name == "quoit.loop" ? entry.Item3 : entry.Item4).Add(tag);
            }
            seen[instrument.Name] = entry with { Item2 = entry.Item2 + value };
        });
        listener.Start();
        listener.RecordObservableInstruments();
        Assert.Equal(1, seen["quoit.accepted"].Sum);
        Assert.Equal("{connection}", seen["quoit.accepted"].Unit);
        Assert.Equal("By", seen["quoit.received_bytes"].Unit);
        Assert.InRange(seen["quoit.received_bytes"].Sum, 20, 1000);
        Assert.Equal([0, 1], seen["quoit.turns"].Loops.OrderBy(loop => (int)loop!));
        Assert.Equal([transport.Engine == QuoitEngine.Epoll ? "epoll" : "io_uring"], seen["quoit.turns"].Engines);
        Assert.True(seen.ContainsKey("quoit.loop.blocked"));
    }

    [Fact]
    public void The_doctor_says_what_runs_here()
    {
        var report = QuoitDoctor.Examine();
        Assert.True(report.CanRun, report.Reason);
        Assert.NotEmpty(report.Reason);
        Assert.NotNull(report.Library);
        Assert.Matches(@"^\d+\.\d+\.\d+", report.LibraryVersion);
        Assert.Contains(report.Features, feature => feature.Name == "buffer-ring");
        Assert.Equal(Transports.UsableEngines.Contains(QuoitEngine.IoUring), report.IoUring);
    }

    [Fact]
    public async Task The_start_is_logged_once_with_the_engine()
    {
        var transport = new Transport("quoit", QuoitEngine.Epoll, false, false);
        await using var server = await TestServer.StartAsync(
            transport,
            kestrel =>
            {
                kestrel.Listen(System.Net.IPAddress.Loopback, 0);
                kestrel.Listen(System.Net.IPAddress.Loopback, 0);
            },
            static application => application.MapGet("/", static () => "hello"));
        var line = Assert.Single(server.Log.Lines, line => line.Id is { Id: 1, Name: "Started" });
        Assert.Contains("2 loop(s) on Epoll", line.Text, StringComparison.Ordinal);
        Assert.Equal(2, server.Log.Lines.Count(line => line.Id is { Id: 3, Name: "Listening" }));
    }
}
