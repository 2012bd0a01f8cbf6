using System.Net;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What clients see of a server whose process is killed: on sockets first, and then on each engine the same.</summary>
public class ExitTraceScenarios
{
    private static readonly string[] s_requests =
    [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /held HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234",
        "POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n",
    ];

    [Fact]
    public async Task A_process_that_is_killed_ends_its_connections_as_over_sockets()
    {
        var stock = await SeenAsync("sockets", "Auto");
        foreach (var engine in Transports.UsableEngines)
        {
            var seen = await SeenAsync("serve", $"{engine}");
            Assert.True(stock == seen, $"on {engine}:\n{seen}\nover sockets:\n{stock}");
        }
    }

    private static async Task<string> SeenAsync(string part, string engine)
    {
        await using var child = await Child.StartAsync(part, new() { ["Kestrel__Quoit__Engine"] = engine });
        var trace = new Trace();
        var clients = new List<(string Request, Client Client)>();
        try
        {
            foreach (var request in s_requests)
            {
                var client = await Client.ConnectAsync(new IPEndPoint(IPAddress.Loopback, child.Port));
                clients.Add((request, client));
                await client.SendAsync(request);
                if (request.Contains("100000000", StringComparison.Ordinal))
                {
                    // Nothing is left that sends: the kernel tells a reset once, to whoever asks first, and it is the receiver
                    // who is to be told.
                    using var stop = new CancellationTokenSource();
                    var sending = await EndScenarios.SendUntilFullAsync(client, stop.Token);
                    await stop.CancelAsync();
                    await sending.Soon();
                }
                else if (request.StartsWith("GET /held", StringComparison.Ordinal))
                {
                    await client.ReceiveUntilAsync("\r\nheld\r\n");
                }
                else if (request.StartsWith("GET /endless", StringComparison.Ordinal))
                {
                    await client.ReceiveAsync(100_000);
                }
                else if (request.StartsWith("GET / HTTP", StringComparison.Ordinal))
                {
                    await client.ReceiveUntilAsync("hello");
                }
            }
            await child.KillAsync();
            foreach (var (request, client) in clients)
            {
                // How much of a long response the kernel had is its own affair.
                trace.Add(request, (await Trace.ReceiveAsync(client)).Split(", ")[^1]);
            }
        }
        finally
        {
            clients.ForEach(static one => one.Client.Dispose());
        }
        return trace.ToString();
    }
}
