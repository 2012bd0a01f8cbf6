using System.Collections.Concurrent;
using System.Diagnostics.Metrics;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What the framework's own metrics say of connections and memory, which dashboards are made of.</summary>
public class MeterScenarios
{
    public static TheoryData<Transport> Normal => Transports.Normal;

    [Theory]
    [MemberData(nameof(Normal))]
    public async Task The_pools_are_named_as_Kestrels(Transport transport)
    {
        await using var server = await TestServer.HttpAsync(transport, HttpScenarios.Map);
        using var client = new HttpClient();
        Assert.Equal("hello", await client.GetStringAsync(server.Address, Wait.Token));
        Assert.NotEmpty(server.Pools.Owners);
        Assert.All(server.Pools.Owners, owner => Assert.Equal("kestrel", owner));
    }

    /// <summary>The tags of the metric of one connection.</summary>
    private sealed class Durations : IDisposable
    {
        private readonly MeterListener _listener = new();
        private readonly ConcurrentQueue<string> _seen = new();

        public Durations(TestServer server)
        {
            _listener.InstrumentPublished = (instrument, listening) =>
            {
                if (instrument.Name == "kestrel.connection.duration"
                    && ReferenceEquals(instrument.Meter.Scope, server.Services.GetService(typeof(IMeterFactory))))
                {
                    listening.EnableMeasurementEvents(instrument);
                }
            };
            _listener.SetMeasurementEventCallback<double>((_, _, tags, _) =>
            {
                var texts = new List<string>();
                foreach (var (name, value) in tags)
                {
                    texts.Add(name == "server.port" ? name : $"{name}={value}");
                }
                texts.Sort(StringComparer.Ordinal);
                _seen.Enqueue(string.Join(' ', texts));
            });
            _listener.Start();
        }

        public async Task<string> OneAsync()
        {
            string? one = null;
            await Wait.Until(() => _seen.TryDequeue(out one), () => "no connection has ended");
            return one!;
        }

        public void Dispose() => _listener.Dispose();
    }

    private static readonly Dictionary<string, Func<Client, TestServer, Stage, Task>> s_ends = new(StringComparer.Ordinal)
    {
        ["the client ends between two requests"] = static async (client, _, _) =>
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            await client.ReceiveUntilAsync("hello");
            client.EndSending();
        },
        ["the client resets between two requests"] = static async (client, _, _) =>
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            await client.ReceiveUntilAsync("hello");
            client.Reset();
        },
        ["the client ends without a request"] = static (client, _, _) =>
        {
            client.EndSending();
            return Task.CompletedTask;
        },
        ["the client ends in the midst of a head"] = static async (client, _, _) =>
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHo");
            client.EndSending();
        },
        ["the client resets while its request is handled"] = static async (client, _, stage) =>
        {
            await client.SendAsync("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
            await stage.Reached.Task.Soon();
            client.Reset();
        },
        ["the handler aborts"] = static (client, _, _) => client.SendAsync("GET /abort HTTP/1.1\r\nHost: a\r\n\r\n"),
        ["the client wants the end"] = static async (client, _, _) =>
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            await client.ReceiveTextToEndAsync();
        },
        ["nonsense"] = static (client, _, _) => client.SendAsync("nonsense\r\n\r\n"),
        ["the server stops"] = static async (client, server, _) =>
        {
            await client.SendAsync("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            await client.ReceiveUntilAsync("hello");
            await server.StopAsync().Soon();
        },
        ["the server's time to stop is over"] = static async (client, server, stage) =>
        {
            await client.SendAsync("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
            await stage.Reached.Task.Soon();
            using var over = new CancellationTokenSource();
            var stopping = server.StopAsync(over.Token);
            await over.CancelAsync();
            await stopping.Soon();
        },
    };

    public static TheoryData<string> Ends => [.. s_ends.Keys];

    private sealed class Stage
    {
        public TaskCompletionSource Reached { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);
    }

    private static async Task<string> TagsAsync(Transport transport, string end)
    {
        var stage = new Stage();
        await using var server = await TestServer.HttpAsync(transport, application =>
        {
            application.MapGet("/", static () => "hello");
            application.MapGet("/wait", async context =>
            {
                var aborted = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
                using var registration = context.RequestAborted.Register(aborted.SetResult);
                stage.Reached.SetResult();
                await aborted.Task;
            });
            application.MapGet("/abort", static context =>
            {
                context.Abort();
                return Task.CompletedTask;
            });
        });
        using var durations = new Durations(server);
        using var client = await Client.ConnectAsync(server.EndPoint);
        await s_ends[end](client, server, stage);
        return await durations.OneAsync();
    }

    [Theory]
    [MemberData(nameof(Ends))]
    public async Task An_ends_reason_is_the_one_that_it_is_over_sockets(string end)
    {
        string? wanted = null;
        var faults = new List<string>();
        foreach (var transport in Transports.Each.Where(transport => !transport.Tiny))
        {
            var tags = await TagsAsync(transport, end);
            wanted ??= tags;
            if (tags != wanted)
            {
                faults.Add($"{transport}: {tags}");
            }
        }
        Assert.True(faults.Count == 0, $"sockets: {wanted}\n{string.Join('\n', faults)}");
    }
}
