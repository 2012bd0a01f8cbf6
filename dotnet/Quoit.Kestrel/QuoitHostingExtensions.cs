using System.Net;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.DependencyInjection.Extensions;
using Microsoft.Extensions.Options;

namespace Quoit.Kestrel;

/// <summary>Puts Kestrel on Quoit.</summary>
public static class QuoitHostingExtensions
{
    /// <summary>
    /// Kestrel listens on Quoit's loops. Endpoints that Quoit cannot bind are left to the transport of sockets, with a
    /// line in the log; so are all where it cannot run, unless the options require it.
    /// </summary>
    /// <param name="builder">The web host's builder: <c>builder.WebHost</c> of a web application.</param>
    /// <param name="configure">Changes options after the section <c>Kestrel:Quoit</c> of the configuration was
    /// bound to them.</param>
    /// <returns>The builder.</returns>
    public static IWebHostBuilder UseQuoit(this IWebHostBuilder builder, Action<QuoitTransportOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        return builder.ConfigureServices(services => services.AddQuoitTransport(configure));
    }

    /// <summary>Adds the transport to the services, as <see cref="UseQuoit"/> does: for Kestrel, as
    /// <see cref="IConnectionFactory"/> for clients, and as <see cref="QuoitTransportFactory"/>.</summary>
    /// <param name="services">The services.</param>
    /// <param name="configure">Changes options after the configuration was bound to them.</param>
    /// <returns>The services.</returns>
    public static IServiceCollection AddQuoitTransport(
        this IServiceCollection services, Action<QuoitTransportOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(services);
        if (configure is not null)
        {
            services.AddOptions<QuoitTransportOptions>().PostConfigure(configure);
        }
        // Not by the factory: the application may have added one of its own, for its clients.
        if (services.Any(service => service.ServiceType == typeof(Added)))
        {
            return services;
        }
        services.AddSingleton<Added>();
        services.AddOptions<QuoitTransportOptions>()
            .Configure<IServiceProvider>(static (options, provider) => Bind(provider.GetService<IConfiguration>(), options))
            .ValidateOnStart();
        services.TryAddEnumerable(
            ServiceDescriptor.Singleton<IValidateOptions<QuoitTransportOptions>, QuoitTransportOptionsValidator>());
        services.TryAddSingleton<QuoitTransportFactory>();
        // Kestrel asks the last one first. That of sockets must be there before, as Kestrel adds it only if it is alone.
        services.TryAddSingleton<IConnectionListenerFactory, SocketTransportFactory>();
        services.AddSingleton<IConnectionListenerFactory>(static provider => SharedTransport.Of(provider));
        services.TryAddSingleton<IConnectionFactory>(static provider => SharedTransport.Of(provider));
        return services;
    }

    /// <summary>The transport, for who asks for what it can do. The host disposes whatever such a registration returns, and the
    /// factory may be the application's own, which goes on with it.</summary>
    private sealed class SharedTransport(QuoitTransportFactory transport)
        : IConnectionListenerFactory, IConnectionListenerFactorySelector, IConnectionFactory
    {
        public static SharedTransport Of(IServiceProvider provider) => new(provider.GetRequiredService<QuoitTransportFactory>());

        public bool CanBind(EndPoint endpoint) => transport.CanBind(endpoint);

        public ValueTask<IConnectionListener> BindAsync(EndPoint endpoint, CancellationToken cancellationToken = default) =>
            transport.BindAsync(endpoint, cancellationToken);

        public ValueTask<ConnectionContext> ConnectAsync(EndPoint endpoint, CancellationToken cancellationToken = default) =>
            transport.ConnectAsync(endpoint, cancellationToken);
    }

    /// <summary>Says of services that the transport is among them.</summary>
    private sealed class Added;

    /// <summary>Takes in the section of the configuration. Its binder says which value it cannot take for what, but not what
    /// there is to choose from.</summary>
    private static void Bind(IConfiguration? configuration, QuoitTransportOptions options)
    {
        const string Section = QuoitTransportOptions.Section;
        if (configuration?.GetSection(Section) is not { } section)
        {
            return;
        }
        var unknown = section.GetChildren().Select(static child => child.Key).Except(s_names, StringComparer.OrdinalIgnoreCase).ToList();
        if (unknown.Count > 0)
        {
            throw new OptionsValidationException(
                Options.DefaultName,
                typeof(QuoitTransportOptions),
                unknown.Select(static name => $"{Section}:{name} is no option; there are {string.Join(", ", s_names)}."));
        }
        // As in an environment variable, which has no lists. Of a list the section itself has no value.
        foreach (var name in (section[nameof(QuoitTransportOptions.Without)] ?? "").Split(
            ',', StringSplitOptions.RemoveEmptyEntries | StringSplitOptions.TrimEntries))
        {
            options.Without.Add(name);
        }
        try
        {
            section.Bind(options);
        }
        catch (InvalidOperationException error)
        {
            throw new OptionsValidationException(
                Options.DefaultName,
                typeof(QuoitTransportOptions),
                [
                    $"{error.Message.TrimEnd('.')}. {Section}:Engine is {Names<QuoitEngine>()}, {Section}:Scheduling "
                        + $"{Names<QuoitScheduling>()}, {Section}:AcceptMode {Names<QuoitAcceptMode>()}; other values are numbers, "
                        + "true or false, or lengths of time as 00:00:30.",
                ]);
        }
    }

    /// <summary>What can be set in the configuration.</summary>
    private static readonly string[] s_names =
        [.. typeof(QuoitTransportOptions).GetProperties().Select(static property => property.Name).Order(StringComparer.Ordinal)];

    private static string Names<T>()
        where T : struct, Enum => string.Join(" or ", Enum.GetNames<T>());
}
