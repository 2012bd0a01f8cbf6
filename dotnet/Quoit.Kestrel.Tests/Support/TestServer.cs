using System.Collections.Concurrent;
using System.Net;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>A web application on a transport, on a port of its own unless told otherwise.</summary>
public sealed class TestServer : IAsyncDisposable
{
    private readonly WebApplication _application;

    private TestServer(WebApplication application, PoisonPoolFactory pools, MemoryLog log)
    {
        _application = application;
        Pools = pools;
        Log = log;
    }

    public PoisonPoolFactory Pools { get; }

    public MemoryLog Log { get; }

    public IServiceProvider Services => _application.Services;

    /// <summary>Its loops; null on sockets.</summary>
    internal Quoit.Kestrel.Loops.LoopGroup? Loops => Services.GetService<QuoitTransportFactory>()?.Group;

    public ICollection<string> Urls => _application.Urls;

    public int Port => new Uri(Urls.First().Replace("[::]", "localhost", StringComparison.Ordinal)).Port;

    public IPEndPoint EndPoint => new(IPAddress.Loopback, Port);

    public string Address => $"http://127.0.0.1:{Port}";

    /// <summary>Serves HTTP.</summary>
    public static Task<TestServer> HttpAsync(
        Transport transport, Action<WebApplication> map, Action<ListenOptions>? listen = null,
        Action<QuoitTransportOptions>? options = null, Action<IServiceCollection>? services = null, int port = 0) =>
        StartAsync(transport, kestrel => kestrel.Listen(IPAddress.Loopback, port, listening => listen?.Invoke(listening)), map, options, services);

    /// <summary>Serves bare connections.</summary>
    public static Task<TestServer> RawAsync(
        Transport transport, Func<ConnectionContext, Task> handler, Action<QuoitTransportOptions>? options = null) =>
        StartAsync(
            transport, kestrel => kestrel.Listen(IPAddress.Loopback, 0, listening => listening.Run(handler)), null, options);

    public static async Task<TestServer> StartAsync(
        Transport transport, Action<KestrelServerOptions>? listen, Action<WebApplication>? map,
        Action<QuoitTransportOptions>? options = null, Action<IServiceCollection>? services = null)
    {
        var pools = new PoisonPoolFactory();
        var log = new MemoryLog();
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders().AddProvider(log).SetMinimumLevel(LogLevel.Debug);
        builder.Services.AddSingleton<IMemoryPoolFactory<byte>>(pools);
        builder.Services.Configure<Microsoft.Extensions.Hosting.HostOptions>(host => host.ShutdownTimeout = TimeSpan.FromSeconds(20));
        services?.Invoke(builder.Services);
        transport.Use(builder.WebHost, options);
        builder.WebHost.ConfigureKestrel(kestrel =>
        {
            kestrel.Limits.MaxRequestBodySize = null;
            kestrel.Limits.MinRequestBodyDataRate = null;
            kestrel.Limits.MinResponseDataRate = null;
            listen?.Invoke(kestrel);
        });
        var application = builder.Build();
        map?.Invoke(application);
        try
        {
            await application.StartAsync();
        }
        catch
        {
            await application.DisposeAsync();
            throw;
        }
        return new TestServer(application, pools, log);
    }

    /// <summary>Ends it without stopping it first, as a program does that is left by an exception.</summary>
    public ValueTask DropAsync() => _application.DisposeAsync();

    /// <summary>Ends it in order; what is still in flight when the token is cancelled is aborted.</summary>
    public Task StopAsync(CancellationToken cancellation = default) => _application.StopAsync(cancellation);

    public async ValueTask DisposeAsync()
    {
        await _application.StopAsync();
        await _application.DisposeAsync();
        Pools.Verify();
    }
}

/// <summary>Keeps what is logged.</summary>
public sealed class MemoryLog : ILoggerProvider
{
    private readonly ConcurrentQueue<Line> _lines = new();

    public IEnumerable<Line> Lines => _lines;

    public ILogger CreateLogger(string categoryName) => new Logger(this, categoryName);

    public void Dispose()
    {
    }

    /// <summary>One message, with the text of its exception behind it.</summary>
    public sealed record Line(LogLevel Level, EventId Id, string Text, string Category);

    private sealed class Logger(MemoryLog owner, string category) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            owner._lines.Enqueue(new Line(logLevel, eventId, formatter(state, exception) + exception, category));
    }
}
