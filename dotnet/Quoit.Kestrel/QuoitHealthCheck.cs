using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;

namespace Quoit.Kestrel;

/// <summary>Adds the transport's health to an application's.</summary>
public static class QuoitHealthChecksBuilderExtensions
{
    /// <summary>
    /// Adds the check <c>quoit</c>: unhealthy when a loop has failed; degraded while a loop is blocked, and where
    /// endpoints were left to the transport of sockets, or Quoit was not added at all; otherwise healthy, with the engine and its
    /// reason.
    /// </summary>
    /// <param name="builder">The application's checks.</param>
    /// <param name="name">The check's name.</param>
    /// <returns>The builder.</returns>
    public static IHealthChecksBuilder AddQuoit(this IHealthChecksBuilder builder, string name = "quoit")
    {
        ArgumentNullException.ThrowIfNull(builder);
        return builder.AddCheck<QuoitHealthCheck>(name);
    }
}

/// <summary>How the loops are.</summary>
internal sealed class QuoitHealthCheck(IServiceProvider services) : IHealthCheck
{
    private readonly QuoitTransportFactory? _transport = services.GetService<QuoitTransportFactory>();

    public Task<HealthCheckResult> CheckHealthAsync(HealthCheckContext context, CancellationToken cancellationToken = default) =>
        Task.FromResult(Check());

    private HealthCheckResult Check()
    {
        if (_transport is not { } transport)
        {
            return HealthCheckResult.Degraded(
                "The transport of sockets runs: call UseQuoit() on the web host's builder, or AddQuoitTransport() on its services.");
        }
        if (transport.Unavailable is { } reason)
        {
            return HealthCheckResult.Degraded($"The transport of sockets runs: {reason.Message}");
        }
        if (transport.Group is not { } group)
        {
            return HealthCheckResult.Healthy("No endpoint has been bound yet.");
        }
        if (group.Failure is { } failure)
        {
            return HealthCheckResult.Unhealthy(failure.Message, failure);
        }
        var limit = group.Options.BlockedLoopLimit;
        var blocked = group.Loops.Count(loop => loop.BusySince is var since and not 0
            && group.Options.Clock() - since >= limit.TotalMilliseconds);
        var data = new Dictionary<string, object>
        {
            ["engine"] = group.Engine.ToString(),
            ["reason"] = group.EngineReason,
            ["loops"] = group.Loops.Count,
            ["blocked"] = group.Blocked,
        };
        return blocked > 0
            ? HealthCheckResult.Degraded($"{blocked} of {group.Loops.Count} loop(s) kept by code for more than {limit}.", data: data)
            : HealthCheckResult.Healthy($"{group.Loops.Count} loop(s) on {group.Engine}: {group.EngineReason}", data);
    }
}
