using System.Net;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Connections;

namespace Quoit.Kestrel;

/// <summary>Puts HttpClient, and reverse proxies on it, on Quoit.</summary>
public static class QuoitHttpExtensions
{
    /// <summary>The handler makes its connections by that factory from now on.</summary>
    /// <param name="handler">The handler; before its first request.</param>
    /// <param name="factory">The factory: <see cref="QuoitTransportFactory"/>, or <see cref="IConnectionFactory"/> of
    /// the services.</param>
    /// <returns>The handler.</returns>
    public static SocketsHttpHandler UseQuoit(this SocketsHttpHandler handler, IConnectionFactory factory)
    {
        ArgumentNullException.ThrowIfNull(handler);
        handler.ConnectCallback = CreateConnectCallback(factory);
        return handler;
    }

    /// <summary>A callback for <see cref="SocketsHttpHandler.ConnectCallback"/>: it makes connections to the endpoint
    /// that is asked for by that factory.</summary>
    /// <param name="factory">The factory.</param>
    /// <returns>The callback.</returns>
    public static Func<SocketsHttpConnectionContext, CancellationToken, ValueTask<Stream>> CreateConnectCallback(IConnectionFactory factory)
    {
        ArgumentNullException.ThrowIfNull(factory);
        return async (context, cancellation) =>
        {
            EndPoint endPoint = IPAddress.TryParse(context.DnsEndPoint.Host, out var address)
                ? new IPEndPoint(address, context.DnsEndPoint.Port)
                : context.DnsEndPoint;
            return ConnectionStream.Over(await factory.ConnectAsync(endPoint, cancellation).ConfigureAwait(false));
        };
    }
}
