using System.Diagnostics;
using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using System.Text;

namespace Lab;

/// <summary>
/// Makes load over TLS, which <c>quoit load</c> does not speak: connections in a closed loop, each with one request at a
/// time. Each response has to be the same but for its date. Ends with a JSON object as the lab takes it from a client.
/// </summary>
internal sealed class Load
{
    private const string Usage =
        "usage: kestrel load --connect HOST:PORT --seconds N [--connections N] [--handshakes on|off]";

    private static readonly byte[] s_request =
        "GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"u8.ToArray();

    private readonly IPEndPoint _connect;
    private readonly double _seconds;
    private readonly int _connections;
    private readonly bool _handshakes;
    private long _requests;

    private Load(IPEndPoint connect, double seconds, int connections, bool handshakes)
    {
        _connect = connect;
        _seconds = seconds;
        _connections = connections;
        _handshakes = handshakes;
    }

    public static async Task<int> RunAsync(string[] words)
    {
        IPEndPoint? connect = null;
        var (seconds, connections, handshakes) = (0.0, 64, false);
        var right = words.Length % 2 == 1;
        for (var index = 1; right && index < words.Length; index += 2)
        {
            var value = words[index + 1];
            right = words[index] switch
            {
                "--connect" => IPEndPoint.TryParse(value, out connect),
                "--seconds" => double.TryParse(value, System.Globalization.CultureInfo.InvariantCulture, out seconds) && seconds > 0,
                "--connections" => int.TryParse(value, out connections) && connections is >= 1 and <= 10_000,
                "--handshakes" => value is "on" or "off" && ((handshakes = value == "on") || true),
                _ => false,
            };
        }
        if (!right || connect is null || seconds <= 0)
        {
            Console.Error.WriteLine($"kestrel: {Usage}");
            return 2;
        }
        try
        {
            Console.WriteLine(await new Load(connect, seconds, connections, handshakes).MeasureAsync());
            return 0;
        }
        catch (Exception failure) when (failure is IOException or SocketException or InvalidDataException or System.Security.Authentication.AuthenticationException)
        {
            Console.Error.WriteLine($"kestrel: load on {connect}: {failure.Message}");
            return 1;
        }
    }

    private async Task<string> MeasureAsync()
    {
        // One by one, so that the server's queue of new connections is never full.
        var open = new SslStream?[_connections];
        for (var index = 0; index < open.Length && !_handshakes; index++)
        {
            open[index] = await ConnectAsync();
        }
        var clock = Stopwatch.StartNew();
        await Task.WhenAll(open.Select(stream => Task.Run(() => AskAsync(stream, clock))));
        var elapsed = clock.Elapsed.TotalSeconds;
        return string.Create(
            System.Globalization.CultureInfo.InvariantCulture,
            $$$"""{"requests":{{{_requests}}},"elapsed_seconds":{{{elapsed}}},"errors":{}}""");
    }

    private async Task<SslStream> ConnectAsync()
    {
        var socket = new Socket(_connect.AddressFamily, SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        try
        {
            await socket.ConnectAsync(_connect);
            var stream = new SslStream(new NetworkStream(socket, ownsSocket: true));
            await stream.AuthenticateAsClientAsync(new SslClientAuthenticationOptions
            {
                TargetHost = "localhost",
                ApplicationProtocols = [SslApplicationProtocol.Http11],
                // The server has made it for itself just now.
                RemoteCertificateValidationCallback = static (_, _, _, _) => true,
                // A handshake that goes on where another ended costs the server less.
                AllowTlsResume = !_handshakes,
            });
            return stream;
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }

    private async Task AskAsync(SslStream? stream, Stopwatch clock)
    {
        var buffer = new byte[4096];
        var expected = 0;
        while (clock.Elapsed.TotalSeconds < _seconds)
        {
            stream ??= await ConnectAsync();
            await stream.WriteAsync(s_request);
            var length = await ReadResponseAsync(stream, buffer);
            if (expected != 0 && length != expected)
            {
                throw new InvalidDataException($"a response has {length} bytes, and others had {expected}");
            }
            expected = length;
            Interlocked.Increment(ref _requests);
            if (_handshakes)
            {
                await stream.DisposeAsync();
                stream = null;
            }
        }
        if (stream is not null)
        {
            await stream.DisposeAsync();
        }
    }

    /// <summary>Reads one response and checks it; answers its length.</summary>
    private static async ValueTask<int> ReadResponseAsync(SslStream stream, byte[] buffer)
    {
        var filled = 0;
        while (true)
        {
            var read = await stream.ReadAsync(buffer.AsMemory(filled));
            if (read == 0)
            {
                throw new InvalidDataException(
                    $"the server ended a connection behind {filled} bytes of a response, or it has more than {buffer.Length}");
            }
            filled += read;
            var response = buffer.AsSpan(0, filled);
            var head = response.IndexOf("\r\n\r\n"u8);
            if (head < 0 || filled < head + 4 + Answers.PlaintextBytes.Length)
            {
                continue;
            }
            if (!response.StartsWith("HTTP/1.1 200 "u8) || !response[(head + 4)..].SequenceEqual(Answers.PlaintextBytes))
            {
                throw new InvalidDataException($"a response is not as it should be: {Encoding.Latin1.GetString(response)}");
            }
            return filled;
        }
    }
}
