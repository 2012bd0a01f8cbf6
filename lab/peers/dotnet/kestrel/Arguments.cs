using System.Net;
using Quoit.Kestrel;

namespace Lab;

/// <summary>What was asked for on the command line.</summary>
/// <param name="Service">What it serves.</param>
/// <param name="Listen">Where to listen; port 0 for any.</param>
/// <param name="Loops">Loops of Quoit, or I/O queues of Kestrel's own transport.</param>
/// <param name="Transport">By its name in the ready line.</param>
/// <param name="Bare">Whether the application is bare, or a minimal API.</param>
/// <param name="Tls">Whether it serves over TLS.</param>
/// <param name="Client">What the HttpClient behind <c>/client</c> runs on, by the names of transports; null for no such
/// path.</param>
/// <param name="Metrics">Where its counters are; null for nowhere.</param>
internal sealed record Arguments(
    Service Service, IPEndPoint Listen, int Loops, string Transport, bool Bare, bool Tls, string? Client,
    IPEndPoint? Metrics)
{
    private static readonly string[] s_transports =
        ["sockets", "sockets-inline", "quoit-uring", "quoit-epoll", "quoit-uring-inline", "quoit-epoll-inline"];

    private static readonly Dictionary<string, Service> s_services = new()
    {
        ["http"] = Service.Http,
        ["h2c"] = Service.Http2,
        ["websocket"] = Service.WebSocket,
    };

    public bool Inline => IsInline(Transport);

    public bool Quoit => IsQuoit(Transport);

    public static bool IsQuoit(string transport) => transport.StartsWith("quoit", StringComparison.Ordinal);

    private static bool IsInline(string transport) => transport.EndsWith("-inline", StringComparison.Ordinal);

    /// <summary>Quoit's options for a transport; only if it is one of Quoit's.</summary>
    public void Apply(QuoitTransportOptions options, string transport)
    {
        options.Engine = transport.Contains("epoll", StringComparison.Ordinal) ? QuoitEngine.Epoll : QuoitEngine.IoUring;
        options.Scheduling = IsInline(transport) ? QuoitScheduling.UnsafeInlineOnLoop : QuoitScheduling.ThreadPool;
        options.Loops = Loops;
        options.Backlog = 4096;
    }

    /// <summary>The arguments; null, and one line on standard error, if they are wrong.</summary>
    public static Arguments? Parse(string[] words)
    {
        var service = words is [var word, ..] && s_services.TryGetValue(word, out var known) ? known : default(Service?);
        var arguments = new Arguments(
            service ?? default, new IPEndPoint(IPAddress.Loopback, 0), 1, "sockets", false, false, null, null);
        var fault = words.Length % 2 == 0 || service is null
            ? $"usage: kestrel {string.Join('|', s_services.Keys)} [--listen HOST:PORT] [--loops N] [--transport {string.Join('|', s_transports)}] "
                + "[--app minimal|bare] [--tls on|off] [--client TRANSPORT] [--metrics HOST:PORT]"
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
                case "--tls" when value is "on" or "off":
                    arguments = arguments with { Tls = value == "on" };
                    break;
                case "--client" when s_transports.Contains(value) && value != "sockets-inline":
                    arguments = arguments with { Client = value };
                    break;
                case "--metrics" when IPEndPoint.TryParse(value, out var metrics):
                    arguments = arguments with { Metrics = metrics };
                    break;
                default:
                    fault = $"{words[index]} does not take {value}";
                    break;
            }
        }
        if (fault is null && service != Service.Http && (arguments.Bare || arguments.Tls || arguments.Client is not null))
        {
            fault = "--app bare, --tls and --client are for http";
        }
        if (fault is null && arguments.Bare && (arguments.Tls || arguments.Client is not null))
        {
            fault = "--tls and --client are for --app minimal";
        }
        if (fault is null && arguments.Tls && arguments.Client is not null)
        {
            fault = "--client asks this server without TLS; leave one of them out";
        }
        if (fault is not null)
        {
            Console.Error.WriteLine($"kestrel: {fault}");
            return null;
        }
        return arguments;
    }
}

internal enum Service
{
    /// <summary>HTTP/1.1, and HTTP/2 over TLS.</summary>
    Http,

    /// <summary>HTTP/2 without TLS, from clients that know it beforehand.</summary>
    Http2,

    /// <summary>Messages over WebSocket are sent back.</summary>
    WebSocket,
}
