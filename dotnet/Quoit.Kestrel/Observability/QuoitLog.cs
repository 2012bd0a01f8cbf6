using System.Net;
using Microsoft.Extensions.Logging;

namespace Quoit.Kestrel.Observability;

/// <summary>What the transport logs. Event ids are kept from version to version.</summary>
internal sealed partial class QuoitLog(ILogger logger)
{
    /// <summary>The category of all of it.</summary>
    public const string Category = "Quoit.Kestrel";

    private readonly Guarded _logger = new(logger);

    [LoggerMessage(1, LogLevel.Information, "Quoit runs {Loops} loop(s) on {Engine}: {Reason}", EventName = "Started")]
    public partial void Started(int loops, QuoitEngine engine, string reason);

    [LoggerMessage(2, LogLevel.Warning, "Quoit leaves all endpoints to the transport of sockets: {Reason}", EventName = "LeftToSockets")]
    public partial void LeftToSockets(string reason);

    [LoggerMessage(3, LogLevel.Debug, "Quoit listens on {EndPoint} by {Engine}.", EventName = "Listening")]
    public partial void Listening(EndPoint endPoint, QuoitEngine engine);

    [LoggerMessage(4, LogLevel.Critical, "Loop {Loop} of Quoit ends and its connections are lost: {Reason}", EventName = "LoopFailed")]
    public partial void LoopFailed(int loop, string reason);

    [LoggerMessage(5, LogLevel.Warning, "Loop {Loop} of Quoit has been blocked for more than {Limit} ms by code that runs on it, and all of its connections wait (seen {Count} time(s) so far). Do not block on the loop, or use QuoitScheduling.ThreadPool.", EventName = "LoopBlocked")]
    public partial void LoopBlocked(int loop, long limit, long count);

    [LoggerMessage(6, LogLevel.Warning, "Loop {Loop} of Quoit cannot be pinned to a processor, and runs on any.", EventName = "PinningFailed")]
    public partial void PinningFailed(int loop);

    [LoggerMessage(7, LogLevel.Error, "Accepting on {EndPoint} has ended: {Reason}", EventName = "AcceptingFailed")]
    public partial void AcceptingFailed(EndPoint endPoint, string reason);

    [LoggerMessage(8, LogLevel.Error, "A callback of ConnectionClosed has failed; connection id \"{ConnectionId}\".", EventName = "ClosedCallbackFailed")]
    public partial void ClosedCallbackFailed(string connectionId, Exception failure);

    [LoggerMessage(9, LogLevel.Error, "Loop {Loop} of Quoit has accepted a connection that cannot be made, and resets it.", EventName = "ConnectionNotMade")]
    public partial void ConnectionNotMade(int loop, Exception failure);

    [LoggerMessage(10, LogLevel.Error, "Connection id \"{ConnectionId}\" has ended, and the pool has failed to take its memory back.", EventName = "MemoryNotReturned")]
    public partial void MemoryNotReturned(string connectionId, Exception failure);

    [LoggerMessage(20, LogLevel.Debug, "Connection id \"{ConnectionId}\" accepted.", EventName = "ConnectionAccepted", SkipEnabledCheck = true)]
    private partial void ConnectionAcceptedCore(string connectionId);

    [LoggerMessage(21, LogLevel.Debug, "Connection id \"{ConnectionId}\" received FIN.", EventName = "ConnectionReadFin", SkipEnabledCheck = true)]
    private partial void ConnectionReadFinCore(string connectionId);

    [LoggerMessage(22, LogLevel.Debug, "Connection id \"{ConnectionId}\" sent everything and sends FIN.", EventName = "ConnectionWriteFin", SkipEnabledCheck = true)]
    private partial void ConnectionWriteFinCore(string connectionId);

    [LoggerMessage(23, LogLevel.Debug, "Connection id \"{ConnectionId}\" sends RST because: \"{Reason}\"", EventName = "ConnectionWriteRst", SkipEnabledCheck = true)]
    private partial void ConnectionWriteRstCore(string connectionId, string reason);

    [LoggerMessage(24, LogLevel.Debug, "Connection id \"{ConnectionId}\" has failed: {Reason}", EventName = "ConnectionFailed", SkipEnabledCheck = true)]
    private partial void ConnectionFailedCore(string connectionId, string reason);

    [LoggerMessage(25, LogLevel.Debug, "Connection id \"{ConnectionId}\" paused.", EventName = "ConnectionPaused", SkipEnabledCheck = true)]
    private partial void ConnectionPausedCore(string connectionId);

    [LoggerMessage(26, LogLevel.Debug, "Connection id \"{ConnectionId}\" resumed.", EventName = "ConnectionResumed", SkipEnabledCheck = true)]
    private partial void ConnectionResumedCore(string connectionId);

    [LoggerMessage(27, LogLevel.Debug, "Connection id \"{ConnectionId}\" receives no more: {Reason}", EventName = "ReceivingStopped", SkipEnabledCheck = true)]
    private partial void ReceivingStoppedCore(string connectionId, string reason);

    // The connection makes its id when it is first asked for: only if somebody wants to read it.

    public void ConnectionAccepted(Connections.QuoitConnection connection)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionAcceptedCore(connection.ConnectionId);
        }
    }

    public void ConnectionReadFin(Connections.QuoitConnection connection)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionReadFinCore(connection.ConnectionId);
        }
    }

    public void ConnectionWriteFin(Connections.QuoitConnection connection)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionWriteFinCore(connection.ConnectionId);
        }
    }

    public void ConnectionWriteRst(Connections.QuoitConnection connection, string? reason)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionWriteRstCore(connection.ConnectionId, reason ?? "");
        }
    }

    public void ConnectionFailed(Connections.QuoitConnection connection, string reason)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionFailedCore(connection.ConnectionId, reason);
        }
    }

    public void ConnectionPaused(Connections.QuoitConnection connection)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionPausedCore(connection.ConnectionId);
        }
    }

    public void ConnectionResumed(Connections.QuoitConnection connection)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ConnectionResumedCore(connection.ConnectionId);
        }
    }

    public void ReceivingStopped(Connections.QuoitConnection connection, string reason)
    {
        if (_logger.IsEnabled(LogLevel.Debug))
        {
            ReceivingStoppedCore(connection.ConnectionId, reason);
        }
    }

    /// <summary>The application's log. What fails there stays there: most lines are written on a loop's thread, where an exception
    /// would end the process, or in the midst of what must not be left half done.</summary>
    private sealed class Guarded(ILogger inner) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => inner.BeginScope(state);

        public bool IsEnabled(LogLevel logLevel)
        {
            try
            {
                return inner.IsEnabled(logLevel);
            }
            catch (Exception)
            {
                return false;
            }
        }

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            try
            {
                inner.Log(logLevel, eventId, state, exception, formatter);
            }
            catch (Exception)
            {
                // There is no other place to tell it.
            }
        }
    }
}
