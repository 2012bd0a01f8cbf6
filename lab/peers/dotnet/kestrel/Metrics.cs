using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Runtime;
using System.Text;

namespace Lab;

/// <summary>
/// What the runtime has compiled, by which the lab sees whether a program was warmed up, and what Quoit's loops count, as
/// Prometheus text. Answered by a thread and a socket of its own, so that what is measured has no part in it.
/// </summary>
internal sealed class Metrics : IDisposable
{
    private readonly Socket _listener;
    private readonly LoopFigures _loops;
    private readonly Lock _reading = new();

    /// <summary>Answers on that address until the process ends, and says where on standard error.</summary>
    /// <param name="address">Port 0 for any.</param>
    /// <param name="loops">Loops of a transport, if they are Quoit's.</param>
    public Metrics(IPEndPoint address, int loops)
    {
        _loops = new LoopFigures(loops);
        _listener = new Socket(address.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
        _listener.Bind(address);
        _listener.Listen();
        new Thread(AnswerAll) { IsBackground = true, Name = "metrics" }.Start();
        Console.Error.WriteLine($"metrics on {_listener.LocalEndPoint}");
    }

    /// <summary>Has what a reading runs compiled now that there are loops, rather than with the first reading, which would
    /// find itself.</summary>
    public void WarmUp()
    {
        for (var time = 0; time < 2; time++)
        {
            _ = Text();
        }
    }

    public void Dispose()
    {
        _listener.Dispose();
        _loops.Dispose();
    }

    private void AnswerAll()
    {
        var request = new byte[4096];
        while (true)
        {
            try
            {
                using var client = _listener.Accept();
                client.ReceiveTimeout = client.SendTimeout = 1000;
                // One request, whatever it asks for.
                var filled = 0;
                while (filled < request.Length && request.AsSpan(0, filled).IndexOf("\r\n\r\n"u8) < 0)
                {
                    var read = client.Receive(request, filled, request.Length - filled, SocketFlags.None);
                    if (read == 0)
                    {
                        break;
                    }
                    filled += read;
                }
                client.Send(Text());
            }
            catch (SocketException)
            {
                // Whoever asked has gone.
            }
            catch (ObjectDisposedException)
            {
                return;
            }
        }
    }

    private byte[] Text()
    {
        var seconds = JitInfo.GetCompilationTime().TotalSeconds.ToString(CultureInfo.InvariantCulture);
        var text = new StringBuilder()
            .Append("# HELP quoit_compiling_seconds Time that the runtime has spent compiling methods, some of them anew.\n")
            .Append("# TYPE quoit_compiling_seconds counter\n")
            .Append(CultureInfo.InvariantCulture, $"quoit_compiling_seconds_total {seconds}\n")
            .Append("# HELP quoit_compiled_methods Methods that it has compiled.\n")
            .Append("# TYPE quoit_compiled_methods counter\n")
            .Append(CultureInfo.InvariantCulture, $"quoit_compiled_methods_total {JitInfo.GetCompiledMethodCount()}\n");
        lock (_reading)
        {
            _loops.AppendTo(text);
        }
        return Encoding.ASCII.GetBytes(
            $"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {text.Length}\r\nConnection: close\r\n\r\n{text}");
    }
}
