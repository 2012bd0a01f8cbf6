using System.Diagnostics;
using System.Globalization;
using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using System.Text;

namespace Lab;

/// <summary>
/// Makes load over TLS, which <c>quoit load</c> does not speak: connections in a closed loop, each with one request at a
/// time. Each response has to be the same but for its date. After a warm-up of its own, which goes on into the window that
/// it announces, its requests within that window are counted. Ends with a JSON object as the lab takes it from a client.
/// </summary>
internal sealed class Load
{
    private const string Usage =
        "usage: kestrel load --connect HOST:PORT --seconds N [--warm-up N] [--connections N] [--handshakes on|off]";

    /// <summary>Between the announcement of the window and its opening, so that whoever watches is there.</summary>
    private static readonly TimeSpan s_notice = TimeSpan.FromMilliseconds(200);

    private const double MostSeconds = 86_400;

    private static readonly byte[] s_request =
        "GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"u8.ToArray();

    private readonly IPEndPoint _connect;
    private readonly TimeSpan _warmUp;
    private readonly TimeSpan _lasts;
    private readonly int _connections;
    private readonly bool _handshakes;

    /// <summary>When the window opens and closes, by <see cref="Stopwatch.GetTimestamp"/>.</summary>
    private long _opens = long.MaxValue;
    private long _closes = long.MaxValue;
    private long _requests;
    private volatile bool _failed;

    private Load(IPEndPoint connect, double warmUp, double seconds, int connections, bool handshakes)
    {
        _connect = connect;
        _warmUp = TimeSpan.FromSeconds(warmUp);
        _lasts = TimeSpan.FromSeconds(seconds);
        _connections = connections;
        _handshakes = handshakes;
    }

    public static async Task<int> RunAsync(string[] words)
    {
        IPEndPoint? connect = null;
        var (warmUp, seconds, connections, handshakes) = (0.0, 0.0, 64, false);
        var right = words.Length % 2 == 1;
        for (var index = 1; right && index < words.Length; index += 2)
        {
            var value = words[index + 1];
            right = words[index] switch
            {
                "--connect" => IPEndPoint.TryParse(value, out connect),
                "--seconds" => double.TryParse(value, CultureInfo.InvariantCulture, out seconds) && seconds is > 0 and <= MostSeconds,
                "--warm-up" => double.TryParse(value, CultureInfo.InvariantCulture, out warmUp) && warmUp is >= 0 and <= MostSeconds,
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
            Console.WriteLine(await new Load(connect, warmUp, seconds, connections, handshakes).MeasureAsync());
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
        var asking = Task.WhenAll(open.Select(stream => Task.Run(() => AskAsync(stream))));
        // A load that has failed warms nothing up.
        await Task.WhenAny(asking, Task.Delay(_warmUp));
        if (!asking.IsCompleted)
        {
            Announce();
        }
        await asking;
        return string.Create(
            CultureInfo.InvariantCulture,
            $$$"""{"requests":{{{_requests}}},"elapsed_seconds":{{{_lasts.TotalSeconds}}},"errors":{}}""");
    }

    /// <summary>Sets the window, and tells the lab in its words. On Linux the clock is CLOCK_MONOTONIC, in nanoseconds.</summary>
    private void Announce()
    {
        var opens = Stopwatch.GetTimestamp() + Ticks(s_notice);
        Volatile.Write(ref _closes, opens + Ticks(_lasts));
        Volatile.Write(ref _opens, opens);
        Console.Error.WriteLine(string.Create(
            CultureInfo.InvariantCulture, $"window opens_ns={opens} lasts_ns={Ticks(_lasts)} in_ns={Ticks(s_notice)}"));
    }

    private static long Ticks(TimeSpan time) => (long)(time.TotalSeconds * Stopwatch.Frequency);

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

    private async Task AskAsync(SslStream? stream)
    {
        var buffer = new byte[4096];
        var expected = 0;
        try
        {
            while (!_failed && Stopwatch.GetTimestamp() < Volatile.Read(ref _closes))
            {
                stream ??= await ConnectAsync();
                await stream.WriteAsync(s_request);
                var length = await ReadResponseAsync(stream, buffer);
                if (expected != 0 && length != expected)
                {
                    throw new InvalidDataException($"a response has {length} bytes, and others had {expected}");
                }
                expected = length;
                var now = Stopwatch.GetTimestamp();
                if (now >= Volatile.Read(ref _opens) && now < Volatile.Read(ref _closes))
                {
                    Interlocked.Increment(ref _requests);
                }
                if (_handshakes)
                {
                    await stream.DisposeAsync();
                    stream = null;
                }
            }
        }
        catch
        {
            // The others end with it, for the load is none any more.
            _failed = true;
            throw;
        }
        finally
        {
            if (stream is not null)
            {
                await stream.DisposeAsync();
            }
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
