using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Loops;

// What a turn reports.
internal sealed unsafe partial class Loop
{
    private void Dispatch(ref NativeEvent happened)
    {
        switch (happened.Kind)
        {
            case EventKind.Data:
                if (_connections.TryGetValue(happened.Connection, out var receiver))
                {
                    receiver.OnData(new ReadOnlySpan<byte>(happened.Data, (int)happened.Length));
                }
                Push(CommandKind.ReturnLease, 0, TokenOther).Lease = happened.Lease;
                break;
            case EventKind.Accepted:
                Accepted(happened.Listener, happened.Connection);
                break;
            case EventKind.Sent:
                if (_connections.TryGetValue(happened.Connection, out var sender))
                {
                    sender.OnSent(happened.Token);
                }
                break;
            case EventKind.EndOfStream:
                if (_connections.TryGetValue(happened.Connection, out var ended))
                {
                    ended.OnEndOfStream();
                }
                break;
            case EventKind.SendFailed:
                if (_connections.TryGetValue(happened.Connection, out var broken))
                {
                    broken.OnSendFailed();
                }
                break;
            case EventKind.Closed:
                Closed(ref happened);
                break;
            case EventKind.Connecting:
                if (_connects.TryGetValue(happened.Token, out var connecting))
                {
                    connecting.OnConnecting(happened.Connection);
                }
                break;
            case EventKind.Opened:
                Opened(happened.Token, happened.Connection);
                break;
            case EventKind.Refused:
                Refused(ref happened);
                break;
            case EventKind.ListenerClosed:
                _group.ListenerClosed(happened.Listener, happened.Error);
                break;
        }
    }

    private void Accepted(ulong listener, ulong id)
    {
        var to = _group.FindListener(listener);
        if (to is null)
        {
            Abort(id);
            return;
        }
        var descriptor = Descriptor(id);
        if (descriptor < 0)
        {
            return;
        }
        try
        {
            var connection = new QuoitConnection(this, id, to.LocalEndPointOf(descriptor), Kernel.RemoteEndPoint(descriptor));
            connection.BelongTo(to);
            _connections.Add(id, connection);
            connection.Start();
            _group.Log.ConnectionAccepted(connection);
            if (!to.Offer(connection))
            {
                connection.Abort();
            }
        }
        catch (Exception failure)
        {
            // There is no memory for it. The other connections can go on.
            _group.Log.ConnectionNotMade(Index, failure);
            Abort(id);
        }
    }

    private void Opened(ulong token, ulong id)
    {
        if (!_connects.Remove(token, out var pending))
        {
            return;
        }
        var descriptor = Descriptor(id);
        if (descriptor < 0)
        {
            pending.Fail(new ConnectionResetException("The peer reset the connection."));
            return;
        }
        try
        {
            var remote = pending.Descriptor >= 0 ? Kernel.RemoteEndPoint(descriptor) : pending.RemoteEndPoint;
            var connection = new QuoitConnection(this, id, Kernel.LocalEndPoint(descriptor), remote);
            _connections.Add(id, connection);
            connection.Start();
            if (!pending.Succeed(connection))
            {
                connection.Abort();
            }
        }
        catch (Exception failure)
        {
            // As for one that is accepted; but here somebody waits for it.
            pending.Fail(failure);
            Abort(id);
        }
    }

    private void Closed(ref NativeEvent happened)
    {
        var failure = Failure((CloseReason)happened.Reason, happened.Error);
        if (_connects.Remove(happened.Token, out var pending))
        {
            pending.Fail(failure ?? new OperationCanceledException("The attempt to connect was given up."));
        }
        if (_connections.Remove(happened.Connection, out var connection))
        {
            connection.OnClosed(failure);
        }
    }

    private void Refused(ref NativeEvent happened)
    {
        if (_connects.Remove(happened.Token, out var pending))
        {
            pending.Fail((Refusal)happened.Reason == Refusal.Limit
                ? Errno.ToException(-105, $"The loop has as many connections as it may have; raise {QuoitTransportOptions.Section}:Connections.")
                : Errno.ToException(happened.Error, $"The connection cannot be made: error {-happened.Error}."));
        }
        else if (happened.Token != TokenOther && _connections.TryGetValue(happened.Connection, out var connection))
        {
            connection.OnSendRefused((Refusal)happened.Reason, happened.Token);
        }
    }

    /// <summary>What the peer or the network did to end a connection; null for an end in order.</summary>
    private static Exception? Failure(CloseReason reason, int error) => reason switch
    {
        CloseReason.Local or CloseReason.Peer => null,
        CloseReason.Reset => new ConnectionResetException(
            "The peer reset the connection.", new SocketException((int)SocketError.ConnectionReset)),
        CloseReason.Timeout => new SocketException((int)SocketError.TimedOut),
        CloseReason.Limit => new IOException("The client took nothing while the loop's memory was short."),
        _ => Errno.ToException(error, $"The connection has failed: error {-error}."),
    };
}
