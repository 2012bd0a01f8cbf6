using System.Net;
using System.Net.Sockets;
using System.Text;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A peer made of nothing but a socket.</summary>
public sealed class Client : IDisposable
{
    private Client(Socket socket) => Socket = socket;

    public Socket Socket { get; }

    public static async Task<Client> ConnectAsync(EndPoint to, Action<Socket>? configure = null)
    {
        var socket = to is UnixDomainSocketEndPoint
            ? new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified)
            : new Socket(to.AddressFamily, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        configure?.Invoke(socket);
        await socket.ConnectAsync(to, Wait.Token);
        return new Client(socket);
    }

    public async Task SendAsync(ReadOnlyMemory<byte> bytes)
    {
        while (!bytes.IsEmpty)
        {
            bytes = bytes[await Socket.SendAsync(bytes, Wait.Token)..];
        }
    }

    public Task SendAsync(string text) => SendAsync(Encoding.Latin1.GetBytes(text));

    public async Task<byte[]> ReceiveAsync(int count)
    {
        var bytes = new byte[count];
        var filled = 0;
        while (filled < count)
        {
            var received = await Socket.ReceiveAsync(bytes.AsMemory(filled), Wait.Token);
            Assert.True(received > 0, $"the stream ended after {filled} of {count} bytes");
            filled += received;
        }
        return bytes;
    }

    /// <summary>Everything until the peer's end; a reset is an exception.</summary>
    public async Task<byte[]> ReceiveToEndAsync()
    {
        var all = new MemoryStream();
        var buffer = new byte[64 * 1024];
        while (true)
        {
            var received = await Socket.ReceiveAsync(buffer, Wait.Token);
            if (received == 0)
            {
                return all.ToArray();
            }
            all.Write(buffer, 0, received);
        }
    }

    public async Task<string> ReceiveTextToEndAsync() => Encoding.Latin1.GetString(await ReceiveToEndAsync());

    /// <summary>One response whose body has that text at its end.</summary>
    public async Task<string> ReceiveUntilAsync(string end)
    {
        var text = new StringBuilder();
        var buffer = new byte[1];
        while (!text.ToString().EndsWith(end, StringComparison.Ordinal))
        {
            Assert.Equal(1, await Socket.ReceiveAsync(buffer, Wait.Token));
            text.Append((char)buffer[0]);
        }
        return text.ToString();
    }

    /// <summary>Fails unless the next that comes is a reset.</summary>
    public async Task ExpectResetAsync()
    {
        var buffer = new byte[64 * 1024];
        var failure = await Assert.ThrowsAsync<SocketException>(async () =>
        {
            while (await Socket.ReceiveAsync(buffer, Wait.Token) > 0)
            {
            }
        });
        Assert.Equal(SocketError.ConnectionReset, failure.SocketErrorCode);
    }

    public void EndSending() => Socket.Shutdown(SocketShutdown.Send);

    public void Reset()
    {
        Socket.LingerState = new LingerOption(true, 0);
        Socket.Dispose();
    }

    public void Dispose() => Socket.Dispose();
}

/// <summary>Bytes that tell when some are missing, doubled or exchanged.</summary>
public static class Pattern
{
    /// <summary>The bytes repeat after so many. All of them are kept, so that bodies of a gibibyte are checked in no time.</summary>
    private const int Period = 1 << 24;

    private static readonly byte[] s_period = Create();

    private static byte[] Create()
    {
        var bytes = new byte[Period];
        for (var position = 0; position < Period; position++)
        {
            bytes[position] = (byte)((position * 31) + ((position >> 8) * 7) + (position >> 16));
        }
        return bytes;
    }

    public static byte[] Bytes(int count, long from = 0)
    {
        var bytes = new byte[count];
        for (var done = 0; done < count;)
        {
            var piece = Piece(from + done, count - done);
            piece.CopyTo(bytes.AsSpan(done));
            done += piece.Length;
        }
        return bytes;
    }

    /// <summary>Fails if the bytes are not those from that position on.</summary>
    public static void Check(ReadOnlySpan<byte> bytes, long from)
    {
        for (var done = 0; done < bytes.Length;)
        {
            var piece = Piece(from + done, bytes.Length - done);
            var same = bytes[done..].CommonPrefixLength(piece);
            if (same < piece.Length)
            {
                Assert.Fail($"the byte at {from + done + same} is {bytes[done + same]}, not {piece[same]}");
            }
            done += same;
        }
    }

    private static ReadOnlySpan<byte> Piece(long from, int most)
    {
        var at = (int)(from % Period);
        return s_period.AsSpan(at, Math.Min(most, Period - at));
    }
}
