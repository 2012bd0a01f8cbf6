using System.Net;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;
using Quoit.Kestrel;

namespace Lab;

/// <summary>The application as most write it.</summary>
internal static class Minimal
{
    public static async Task ServeAsync(Arguments arguments, Action<EndPoint> ready, CancellationToken ended)
    {
        // The folder that the program was started in, and all below it, would be watched for another configuration: whatever
        // is written there would cost processor time that is taken for the requests'.
        var builder = WebApplication.CreateSlimBuilder(new WebApplicationOptions
        {
            Args = ["--hostBuilder:reloadConfigOnChange=false"],
        });
        builder.Logging.ClearProviders();
        using var certificate = arguments.Tls ? Certificate.Create() : null;
        if (arguments.Tls)
        {
            builder.WebHost.UseKestrelHttpsConfiguration();
        }
        builder.WebHost.ConfigureKestrel(options =>
        {
            options.AddServerHeader = false;
            options.Listen(arguments.Listen, listen =>
            {
                if (arguments.Service == Service.Http2)
                {
                    listen.Protocols = HttpProtocols.Http2;
                }
                if (certificate is not null)
                {
                    listen.UseHttps(certificate);
                }
            });
        });
        if (arguments.Quoit)
        {
            builder.WebHost.UseQuoit(options => arguments.Apply(options, arguments.Transport));
        }
        else
        {
            builder.WebHost.UseSockets(options => Configure(options, arguments));
        }
        await using var application = builder.Build();
        if (arguments.Service == Service.Http2)
        {
            application.Map("/", Bodies.HelloAsync);
        }
        else if (arguments.Service == Service.WebSocket)
        {
            // Only then: other requests are not to pass a middleware more.
            application.UseWebSockets();
            application.Map("/", WebSocketEcho.EchoAsync);
        }
        application.MapGet("/plaintext", static context => Answer(context.Response, "text/plain", Answers.PlaintextBytes));
        application.MapGet("/json", static context => Answer(context.Response, "application/json", Answers.Json()));
        application.MapGet("/healthz", static context => Answer(context.Response, "text/plain", Answers.HealthBytes));
        application.MapGet("/bytes/{bytes}", static (HttpContext context, string bytes) => Bodies.BytesAsync(context, bytes));
        application.MapGet(
            "/download/{bytes:long}/{chunk:int}",
            static (HttpContext context, long bytes, int chunk) => Bodies.DownloadAsync(context, bytes, chunk));
        application.MapPost("/upload", Bodies.UploadAsync);
        await using var factory = arguments.Client is { } name ? CreateFactory(arguments, name) : null;
        using var client = arguments.Client is null ? null : CreateClient(factory);
        var own = "";
        if (client is not null)
        {
            // As a proxy does that is its own backend.
            application.MapGet("/client", async context =>
                await Answer(context.Response, "text/plain", await client.GetByteArrayAsync(own, context.RequestAborted)));
        }
        await application.StartAsync(CancellationToken.None);
        var address = new Uri(application.Urls.First());
        own = $"{address.AbsoluteUri}plaintext";
        ready(new IPEndPoint(IPAddress.Parse(address.Host), address.Port));
        await Task.Delay(Timeout.Infinite, ended).ContinueWith(static _ => { }, TaskScheduler.Default);
        await application.StopAsync(CancellationToken.None);
    }

    public static void Configure(SocketTransportOptions options, Arguments arguments)
    {
        options.Backlog = 4096;
        options.IOQueueCount = arguments.Inline ? 0 : arguments.Loops;
        options.UnsafePreferInlineScheduling = arguments.Inline;
    }

    /// <summary>What the client connects by; null for what it does by itself.</summary>
    private static QuoitTransportFactory? CreateFactory(Arguments arguments, string transport)
    {
        if (!Arguments.IsQuoit(transport))
        {
            return null;
        }
        var options = new QuoitTransportOptions();
        arguments.Apply(options, transport);
        return new QuoitTransportFactory(Options.Create(options), NullLoggerFactory.Instance);
    }

    /// <summary>With the settings of a proxy.</summary>
    private static HttpClient CreateClient(IConnectionFactory? factory)
    {
        var handler = new SocketsHttpHandler
        {
            UseProxy = false,
            UseCookies = false,
            AllowAutoRedirect = false,
            ActivityHeadersPropagator = null,
        };
        return new HttpClient(factory is null ? handler : handler.UseQuoit(factory));
    }

    private static Task Answer(HttpResponse response, string contentType, byte[] body)
    {
        response.Headers.Server = "quoit";
        response.ContentType = contentType;
        response.ContentLength = body.Length;
        return response.Body.WriteAsync(body, 0, body.Length);
    }
}
