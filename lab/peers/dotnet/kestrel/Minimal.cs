using System.Net;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Quoit.Kestrel;

namespace Lab;

/// <summary>The application as most write it.</summary>
internal static class Minimal
{
    public static async Task ServeAsync(Arguments arguments, Action<EndPoint> ready, CancellationToken ended)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(options =>
        {
            options.AddServerHeader = false;
            options.Listen(arguments.Listen);
        });
        if (arguments.Quoit)
        {
            builder.WebHost.UseQuoit(arguments.Apply);
        }
        else
        {
            builder.WebHost.UseSockets(options => Configure(options, arguments));
        }
        await using var application = builder.Build();
        application.MapGet("/plaintext", static context => Answer(context.Response, "text/plain", Answers.PlaintextBytes));
        application.MapGet("/json", static context => Answer(context.Response, "application/json", Answers.Json()));
        await application.StartAsync(CancellationToken.None);
        var address = new Uri(application.Urls.First());
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

    private static Task Answer(HttpResponse response, string contentType, byte[] body)
    {
        response.Headers.Server = "quoit";
        response.ContentType = contentType;
        response.ContentLength = body.Length;
        return response.Body.WriteAsync(body, 0, body.Length);
    }
}
