using System.Collections.Concurrent;
using System.Globalization;
using System.Net.Sockets;
using System.Text;
using System.Text.RegularExpressions;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel.Tests.Support;

namespace Quoit.Kestrel.Tests.Scenarios;

/// <summary>What clients see of Kestrel that is sent the requests of all doors, and mixtures of them: on sockets first, and then on
/// each engine the same. <c>QUOIT_HTTP_REQUESTS</c> is how many mixtures are made.</summary>
public sealed partial class HttpRequestScenarios
{
    private const string Last = "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    /// <summary>Up to that length a request is sent byte by byte; longer ones are cut twice.</summary>
    private const int ByteWise = 300;

    /// <summary>What a transport reads at once. A server that closes may have left what is behind that.</summary>
    private const int ReadAtOnce = 2000;

    /// <summary>How many exchanges are made at a time: a server that has more to do finds other things first.</summary>
    private const int AtOnce = 8;

    /// <summary>How often so many are made over each transport at most, where Kestrel's responses depend on what it finds first.
    /// </summary>
    private const int Tries = 20;

    private const string NoEnd = ", and no end";

    /// <summary>What a client sends, piece by piece, and then its end, unless it waits for the server's. With any end it is not
    /// looked at whether that is a reset: the server may have more to read when it closes.</summary>
    private sealed record Exchange(string Name, string[] Pieces, bool Waits, bool AnyEnd);

    [GeneratedRegex("\r\nDate: [^\r]*")]
    private static partial Regex Date();

    private static Task<TestServer> ServeAsync(Transport transport) => TestServer.HttpAsync(transport, static application =>
        application.Run(static async context =>
        {
            using var reader = new StreamReader(context.Request.Body, Encoding.Latin1);
            var body = await reader.ReadToEndAsync();
            var request = context.Request;
            var text = new StringBuilder(request.Method).Append(' ')
                .Append(context.Features.GetRequiredFeature<IHttpRequestFeature>().RawTarget)
                .Append(CultureInfo.InvariantCulture, $" {request.Protocol}");
            foreach (var (name, values) in request.Headers.OrderBy(static field => field.Key, StringComparer.Ordinal))
            {
                text.Append(CultureInfo.InvariantCulture, $" [{name}={values}]");
            }
            text.Append(CultureInfo.InvariantCulture, $" \"{body}\"");
            if (request.SupportsTrailers())
            {
                foreach (var (name, values) in context.Features.GetRequiredFeature<IHttpRequestTrailersFeature>().Trailers)
                {
                    text.Append(CultureInfo.InvariantCulture, $" trailer [{name}={values}]");
                }
            }
            var bytes = Encoding.Latin1.GetBytes(text.ToString());
            context.Response.ContentLength = bytes.Length;
            await context.Response.Body.WriteAsync(bytes);
        }));

    private static async Task<string> SeenAsync(TestServer server, Exchange exchange)
    {
        using var client = await Client.ConnectAsync(server.EndPoint);
        try
        {
            foreach (var piece in exchange.Pieces)
            {
                await client.SendAsync(piece);
            }
            if (!exchange.Waits)
            {
                client.EndSending();
            }
        }
        catch (SocketException)
        {
            // The server has refused the rest, and what it has said is still there.
        }
        var text = new StringBuilder();
        var buffer = new byte[8 * 1024];
        try
        {
            while (await client.Socket.ReceiveAsync(buffer, Wait.Token) is > 0 and var received)
            {
                text.Append(Encoding.Latin1.GetString(buffer, 0, received));
            }
            text.Append(", and its end");
        }
        catch (SocketException)
        {
            text.Append(exchange.AnyEnd ? ", and its end" : ", and a reset");
        }
        catch (OperationCanceledException)
        {
            text.Append(NoEnd);
        }
        var seen = Date().Replace(text.ToString(), "");
        // Of a request that comes in pieces Kestrel asks for the body where that is not there by then.
        return exchange.Pieces.Length > 1 ? seen.Replace("HTTP/1.1 100 Continue\r\n\r\n", "", StringComparison.Ordinal) : seen;
    }

    private static string[] Cut(Random random, string text)
    {
        var first = random.Next(1, text.Length);
        var second = random.Next(first, text.Length);
        return [text[..first], text[first..second], text[second..]];
    }

    /// <summary>A request is followed by one that asks Kestrel to close, and the client waits for that; or it is alone. Where Kestrel may wait for
    /// more, in a request that is not all there or a mixture, the client ends first.</summary>
    private static List<Exchange> Exchanges(List<HostileRequest> requests)
    {
        var random = new Random(2);
        var exchanges = new List<Exchange>();
        foreach (var request in requests)
        {
            var text = request.Text;
            string[] pieces = text.Length > ByteWise
                ? Cut(random, text + Last)
                : [.. text.Select(static one => one.ToString()), Last];
            exchanges.Add(new(request.Name, [text + Last], !request.Unfinished, AnyEnd: text.Length > ReadAtOnce));
            exchanges.Add(new(request.Name + ", cut", pieces, !request.Unfinished, AnyEnd: true));
            exchanges.Add(new(request.Name + ", alone", [text], Waits: false, AnyEnd: true));
        }
        var count = int.Parse(Environment.GetEnvironmentVariable("QUOIT_HTTP_REQUESTS") ?? "300", CultureInfo.InvariantCulture);
        for (var number = 0; number < count; number++)
        {
            var text = HttpRequests.Mix(random, requests) + Last;
            exchanges.Add(new($"mixed {number}", number % 4 == 0 ? Cut(random, text) : [text], Waits: false, AnyEnd: true));
        }
        return exchanges;
    }

    private static async Task<ConcurrentDictionary<Exchange, string>> SeenAsync(TestServer server, IEnumerable<Exchange> exchanges)
    {
        var seen = new ConcurrentDictionary<Exchange, string>();
        var several = new ParallelOptions { MaxDegreeOfParallelism = AtOnce };
        await Parallel.ForEachAsync(exchanges, several, async (exchange, _) => seen[exchange] = await SeenAsync(server, exchange));
        return seen;
    }

    /// <summary>Whether a client sees the same. When one ends its direction, Kestrel drops the responses that it has not sent by then,
    /// on sockets too: how many that are depends on what it finds first. So what was seen over one transport has to be seen over
    /// the other in some of many tries.</summary>
    private static async Task<bool> SameAsync(Exchange exchange, TestServer sockets, TestServer ours, string stock, string found)
    {
        var overSockets = new HashSet<string>(StringComparer.Ordinal) { stock };
        var overOurs = new HashSet<string>(StringComparer.Ordinal) { found };
        for (var tries = 1; !exchange.Waits && tries < Tries && !overSockets.Overlaps(overOurs); tries++)
        {
            overSockets.UnionWith(await Task.WhenAll(Enumerable.Range(0, AtOnce).Select(_ => SeenAsync(sockets, exchange))));
            overOurs.UnionWith(await Task.WhenAll(Enumerable.Range(0, AtOnce).Select(_ => SeenAsync(ours, exchange))));
        }
        return overSockets.Overlaps(overOurs);
    }

    [Fact]
    public async Task Hostile_requests_are_answered_as_over_sockets()
    {
        var requests = HttpRequests.Read();
        Assert.True(requests.Count > 100);
        await using var sockets = await ServeAsync(Transports.Each.First(static transport => !transport.IsQuoit));
        var exchanges = Exchanges(requests);
        var wanted = await SeenAsync(sockets, exchanges);
        Assert.DoesNotContain(wanted, static seen => seen.Value.EndsWith(NoEnd, StringComparison.Ordinal));
        foreach (var transport in Transports.Each.Where(static transport => transport.IsQuoit))
        {
            await using var ours = await ServeAsync(transport);
            var found = await SeenAsync(ours, exchanges);
            var faults = new List<string>();
            foreach (var exchange in exchanges)
            {
                var (stock, here) = (wanted[exchange], found[exchange]);
                if (!await SameAsync(exchange, sockets, ours, stock, here))
                {
                    faults.Add($"{exchange.Name}: {here}\nas over sockets: {stock}");
                }
            }
            Assert.True(faults.Count == 0, $"over {transport}:\n{string.Join("\n\n", faults)}");
        }
    }
}
