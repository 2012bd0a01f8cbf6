using System.Buffers;
using System.Net;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;
using Quoit.Kestrel;

namespace Lab;

/// <summary>The least that can be written on Kestrel: no routing, no middleware, no context of ASP.NET Core's.</summary>
internal sealed class Bare : IHttpApplication<IFeatureCollection>
{
    private const string BytesPath = "/bytes/";

    public static async Task ServeAsync(Arguments arguments, Action<EndPoint> ready, CancellationToken ended)
    {
        // Both transports take their blocks from Kestrel's pools, which only its services hand out.
        await using var host = WebApplication.CreateSlimBuilder().Build();
        IConnectionListenerFactory factory;
        if (arguments.Quoit)
        {
            var options = new QuoitTransportOptions();
            arguments.Apply(options, arguments.Transport);
            factory = new QuoitTransportFactory(
                Options.Create(options), NullLoggerFactory.Instance, host.Services.GetRequiredService<IMemoryPoolFactory<byte>>());
        }
        else
        {
            var options = new SocketTransportOptions();
            Minimal.Configure(options, arguments);
            factory = new SocketTransportFactory(Options.Create(options), NullLoggerFactory.Instance);
        }
        var server = new KestrelServerOptions { AddServerHeader = false };
        server.Listen(arguments.Listen);
        server.ApplicationServices = new ServiceCollection().AddLogging().BuildServiceProvider();
        using var kestrel = new KestrelServer(Options.Create(server), factory, NullLoggerFactory.Instance);
        await kestrel.StartAsync(new Bare(), CancellationToken.None);
        var address = new Uri(kestrel.Features.GetRequiredFeature<Microsoft.AspNetCore.Hosting.Server.Features.IServerAddressesFeature>().Addresses.First());
        ready(new IPEndPoint(IPAddress.Parse(address.Host), address.Port));
        await Task.Delay(Timeout.Infinite, ended).ContinueWith(static _ => { }, TaskScheduler.Default);
        await kestrel.StopAsync(CancellationToken.None);
        await ((factory as IAsyncDisposable)?.DisposeAsync() ?? default);
    }

    public IFeatureCollection CreateContext(IFeatureCollection contextFeatures) => contextFeatures;

    public void DisposeContext(IFeatureCollection context, Exception? exception)
    {
    }

    public Task ProcessRequestAsync(IFeatureCollection context)
    {
        var request = context.GetRequiredFeature<IHttpRequestFeature>();
        var response = context.GetRequiredFeature<IHttpResponseFeature>();
        return request.Path switch
        {
            "/plaintext" => Answer(context, response, "text/plain", Answers.PlaintextBytes),
            "/json" => Answer(context, response, "application/json", Answers.Json()),
            "/healthz" => Answer(context, response, "text/plain", Answers.HealthBytes),
            var path when path.StartsWith(BytesPath, StringComparison.Ordinal)
                && Bodies.TryParseLength(path.AsSpan(BytesPath.Length), out var bytes) => AnswerBytes(context, response, bytes),
            _ => NotFound(response),
        };
    }

    private static Task AnswerBytes(IFeatureCollection context, IHttpResponseFeature response, long bytes)
    {
        response.Headers.Server = "quoit";
        response.Headers.ContentType = "application/octet-stream";
        response.Headers.ContentLength = bytes;
        var aborted = context.GetRequiredFeature<IHttpRequestLifetimeFeature>().RequestAborted;
        return Bodies.WriteAsync(context.GetRequiredFeature<IHttpResponseBodyFeature>(), bytes, aborted);
    }

    private static async Task Answer(IFeatureCollection context, IHttpResponseFeature response, string contentType, byte[] body)
    {
        response.Headers.Server = "quoit";
        response.Headers.ContentType = contentType;
        response.Headers.ContentLength = body.Length;
        var stream = context.GetRequiredFeature<IHttpResponseBodyFeature>();
        // Once the head is begun, the body is written behind it without a copy in between. Neither waits here.
        await stream.StartAsync();
        stream.Writer.Write(body);
    }

    private static Task NotFound(IHttpResponseFeature response)
    {
        response.StatusCode = StatusCodes.Status404NotFound;
        return Task.CompletedTask;
    }
}
