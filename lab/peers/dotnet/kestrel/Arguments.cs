using System.Net;
using Quoit.Kestrel;

namespace Lab;

/// <summary>What was asked for on the command line.</summary>
/// <param name="Listen">Where to listen; port 0 for any.</param>
/// <param name="Loops">Loops of Quoit, or I/O queues of Kestrel's own transport.</param>
/// <param name="Transport">By its name in the ready line.</param>
/// <param name="Bare">Whether the application is bare, or a minimal API.</param>
internal sealed record Arguments(IPEndPoint Listen, int Loops, string Transport, bool Bare)
{
    private static readonly string[] s_transports =
        ["sockets", "sockets-inline", "quoit-uring", "quoit-epoll", "quoit-uring-inline", "quoit-epoll-inline"];

    public bool Inline => Transport.EndsWith("-inline", StringComparison.Ordinal);

    public bool Quoit => Transport.StartsWith("quoit", StringComparison.Ordinal);

    /// <summary>Quoit's options for the transport; only if it is one of Quoit's.</summary>
    public void Apply(QuoitTransportOptions options)
    {
        options.Engine = Transport.Contains("epoll", StringComparison.Ordinal) ? QuoitEngine.Epoll : QuoitEngine.IoUring;
        options.Scheduling = Inline ? QuoitScheduling.UnsafeInlineOnLoop : QuoitScheduling.ThreadPool;
        options.Loops = Loops;
        options.Backlog = 4096;
    }

    /// <summary>The arguments; null, and one line on standard error, if they are wrong.</summary>
    public static Arguments? Parse(string[] words)
    {
        var arguments = new Arguments(new IPEndPoint(IPAddress.Loopback, 0), 1, "sockets", false);
        var fault = words.Length % 2 == 0 || words[0] != "http"
            ? $"usage: kestrel http [--listen HOST:PORT] [--loops N] [--transport {string.Join('|', s_transports)}] [--app minimal|bare]"
            : null;
        for (var index = 1; fault is null && index < words.Length; index += 2)
        {
            var value = words[index + 1];
            switch (words[index])
            {
                case "--listen" when IPEndPoint.TryParse(value, out var listen):
                    arguments = arguments with { Listen = listen };
                    break;
                case "--loops" when int.TryParse(value, out var loops) && loops is >= 1 and <= 1024:
                    arguments = arguments with { Loops = loops };
                    break;
                case "--transport" when s_transports.Contains(value):
                    arguments = arguments with { Transport = value };
                    break;
                case "--app" when value is "minimal" or "bare":
                    arguments = arguments with { Bare = value == "bare" };
                    break;
                default:
                    fault = $"{words[index]} does not take {value}";
                    break;
            }
        }
        if (fault is not null)
        {
            Console.Error.WriteLine($"kestrel: {fault}");
            return null;
        }
        return arguments;
    }
}
