// A service that is restarted without a lost request: on a socket that it inherits, with an end that tells idle clients first.
//
//   dotnet publish dotnet/samples/Restart --output restart
//   systemd-socket-activate -l 5000 dotnet restart/Restart.dll
//
// Not by `dotnet run`: the program would be a child of the process that the socket was handed to, and not take it.
// The next process is started with the same socket, and then this one is sent SIGTERM.
using Microsoft.AspNetCore.Http;
using Quoit.Kestrel;

var builder = WebApplication.CreateBuilder(args);
builder.Logging.AddFilter("Microsoft.AspNetCore", LogLevel.Warning);
// From the stop on, connections end by themselves within this time; then Kestrel closes those that are between two requests.
builder.WebHost.UseQuoit(static options => options.KeepIdle = TimeSpan.FromSeconds(5));
builder.WebHost.ConfigureKestrel(static kestrel => kestrel.UseSystemd());

var app = builder.Build();
app.Use((context, next) =>
{
    // HTTP/2 has GOAWAY for that, which Kestrel sends at the end.
    if (app.Lifetime.ApplicationStopping.IsCancellationRequested && HttpProtocol.IsHttp11(context.Request.Protocol))
    {
        context.Response.Headers.Connection = "close";
    }
    return next(context);
});
app.MapGet("/", () => "Hello, World!");
app.Run();
