using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Runtime;
using System.Text;

namespace Lab;

/// <summary>
/// What the runtime has compiled, as Prometheus text: by it the lab sees whether a program was warmed up. Answered by a
/// thread and a socket of its own, so that what is measured has no part in it.
/// </summary>
internal static class Metrics
{
    /// <summary>Answers on that address until the process ends.</summary>
    public static void Serve(IPEndPoint address)
    {
        // Compiled here rather than with the first reading, which would find itself.
        for (var time = 0; time < 2; time++)
        {
            _ = Text();
        }
        var listener = new Socket(address.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(address);
        listener.Listen();
        new Thread(() => AnswerAll(listener)) { IsBackground = true, Name = "metrics" }.Start();
    }

    private static void AnswerAll(Socket listener)
    {
        var request = new byte[4096];
        while (true)
        {
            try
            {
                using var client = listener.Accept();
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
        }
    }

    private static byte[] Text()
    {
        var seconds = JitInfo.GetCompilationTime().TotalSeconds.ToString(CultureInfo.InvariantCulture);
        var body =
            "# HELP quoit_compiling_seconds Time that the runtime has spent compiling methods, some of them anew.\n"
            + "# TYPE quoit_compiling_seconds counter\n"
            + $"quoit_compiling_seconds_total {seconds}\n"
            + "# HELP quoit_compiled_methods Methods that it has compiled.\n"
            + "# TYPE quoit_compiled_methods counter\n"
            + $"quoit_compiled_methods_total {JitInfo.GetCompiledMethodCount()}\n";
        return Encoding.ASCII.GetBytes(
            $"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {body.Length}\r\nConnection: close\r\n\r\n{body}");
    }
}
