using System.Net.WebSockets;

namespace Lab;

/// <summary>Sends back the pieces of messages, as they come, compressed with a client that asks for it.</summary>
internal static class WebSocketEcho
{
    private const int BufferBytes = 64 * 1024;

    public static async Task EchoAsync(HttpContext context)
    {
        if (!context.WebSockets.IsWebSocketRequest)
        {
            context.Response.StatusCode = StatusCodes.Status400BadRequest;
            return;
        }
        // What the name warns of are secrets beside what an attacker chooses; there are none.
        using var socket = await context.WebSockets.AcceptWebSocketAsync(
            new WebSocketAcceptContext { DangerousEnableCompression = true });
        var buffer = new byte[BufferBytes];
        try
        {
            while (true)
            {
                var received = await socket.ReceiveAsync(buffer.AsMemory(), context.RequestAborted);
                if (received.MessageType == WebSocketMessageType.Close)
                {
                    await socket.CloseOutputAsync(socket.CloseStatus!.Value, socket.CloseStatusDescription, context.RequestAborted);
                    return;
                }
                await socket.SendAsync(
                    buffer.AsMemory(0, received.Count), received.MessageType, received.EndOfMessage, context.RequestAborted);
            }
        }
        catch (WebSocketException)
        {
            // The client broke the protocol, and was told so, or has gone.
        }
    }
}
