using System.Net;
using System.Net.Sockets;
using System.Text;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>Processes that take over from each other with the same socket, by the sample that shows how.</summary>
public class RestartScenarios
{
    private const int Clients = 16;

    /// <summary>A client that keeps its connection until a response says that it closes, and sends nothing twice.</summary>
    private sealed class Client(IPEndPoint address) : IDisposable
    {
        private static readonly byte[] s_request = Encoding.ASCII.GetBytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        private Socket? _socket;

        public int Connects { get; private set; }

        public async Task AskAsync()
        {
            if (_socket is null)
            {
                _socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
                await _socket.ConnectAsync(address, Wait.Token);
                Connects++;
            }
            await _socket.SendAsync(s_request, Wait.Token);
            var response = "";
            var piece = new byte[1024];
            // The body comes in one chunk, whose end may come after it.
            while (!response.EndsWith("Hello, World!\r\n0\r\n\r\n", StringComparison.Ordinal)
                && !response.EndsWith("\r\n\r\nHello, World!", StringComparison.Ordinal))
            {
                var length = await _socket.ReceiveAsync(piece, Wait.Token);
                Assert.True(length > 0, $"no answer, but `{response}`");
                response += Encoding.ASCII.GetString(piece, 0, length);
            }
            Assert.StartsWith("HTTP/1.1 200 OK\r\n", response, StringComparison.Ordinal);
            if (response.Contains("\r\nConnection: close\r\n", StringComparison.Ordinal))
            {
                Dispose();
            }
        }

        public void Dispose()
        {
            _socket?.Dispose();
            _socket = null;
        }
    }

    [Fact]
    public async Task Restarts_lose_no_request()
    {
        if (!File.Exists("/bin/bash"))
        {
            return; // It hands the socket over.
        }
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        socket.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        socket.Listen();
        var address = (IPEndPoint)socket.LocalEndPoint!;
        Task<SampleScenarios.Sample> StartAsync(int number)
        {
            var engine = Transports.UsableEngines[number % Transports.UsableEngines.Length];
            return SampleScenarios.Sample.StartOnAsync(socket, "Restart", $"--Kestrel:Quoit:Engine={engine}");
        }

        var sample = await StartAsync(0);
        using var over = new CancellationTokenSource();
        var asking = Enumerable.Range(0, Clients).Select(async _ =>
        {
            using var client = new Client(address);
            while (!over.IsCancellationRequested)
            {
                await client.AskAsync();
            }
            return client.Connects;
        }).ToArray();
        try
        {
            for (var restart = 1; restart <= 3; restart++)
            {
                var next = await StartAsync(restart);
                var old = sample;
                sample = next;
                // It ends when each of its connections was told.
                await old.DisposeAsync();
            }
        }
        finally
        {
            await over.CancelAsync();
            // What is wrong with one of them is told below.
            await ((Task)Task.WhenAll(asking)).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing | ConfigureAwaitOptions.ContinueOnCapturedContext);
            await sample.DisposeAsync();
        }
        Assert.All(await Task.WhenAll(asking), connects => Assert.True(connects > 1, "it met no restart"));
    }
}
