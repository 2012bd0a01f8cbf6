using System.Net.WebSockets;
using System.Text;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A client of SignalR's JSON protocol over a WebSocket; its package is not needed for so little.</summary>
public sealed class HubClient : IDisposable
{
    private const char End = '\u001e';

    private readonly ClientWebSocket _socket = new();
    private readonly Queue<string> _messages = new();

    public static async Task<HubClient> ConnectAsync(int port, string path)
    {
        var client = new HubClient();
        await client._socket.ConnectAsync(new Uri($"ws://127.0.0.1:{port}{path}"), Wait.Token);
        await client.SendAsync("""{"protocol":"json","version":1}""");
        Assert.Equal("{}", await client.NextAsync());
        return client;
    }

    public Task InvokeAsync(string method, string argument) =>
        SendAsync($$"""{"type":1,"target":"{{method}}","arguments":["{{argument}}"]}""");

    /// <summary>The next message that calls that method here.</summary>
    public async Task<string> ReceiveAsync(string method)
    {
        while (true)
        {
            var message = await NextAsync();
            if (message.Contains($"\"{method}\"", StringComparison.Ordinal))
            {
                return message;
            }
        }
    }

    private Task SendAsync(string message) =>
        _socket.SendAsync(Encoding.UTF8.GetBytes(message + End), WebSocketMessageType.Text, true, Wait.Token);

    private async Task<string> NextAsync()
    {
        var buffer = new byte[4096];
        var text = "";
        while (_messages.Count == 0)
        {
            var received = await _socket.ReceiveAsync(buffer.AsMemory(), Wait.Token);
            Assert.NotEqual(WebSocketMessageType.Close, received.MessageType);
            text += Encoding.UTF8.GetString(buffer, 0, received.Count);
            if (text.EndsWith(End))
            {
                foreach (var message in text.Split(End, StringSplitOptions.RemoveEmptyEntries))
                {
                    _messages.Enqueue(message);
                }
            }
        }
        return _messages.Dequeue();
    }

    public void Dispose() => _socket.Dispose();
}
