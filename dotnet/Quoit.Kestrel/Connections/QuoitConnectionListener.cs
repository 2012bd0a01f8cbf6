using System.Net;
using System.Threading.Channels;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Connections;

/// <summary>A bound endpoint, and the connections that its loops accepted and nobody took yet.</summary>
internal sealed class QuoitConnectionListener : IConnectionListener
{
    private readonly LoopGroup _group;
    private readonly Channel<QuoitConnection> _accepted =
        Channel.CreateUnbounded<QuoitConnection>(new UnboundedChannelOptions { AllowSynchronousContinuations = false });

    private readonly TaskCompletionSource _stopped = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly List<(Loop Loop, ulong Id)> _parts = [];
    private readonly Lock _gate = new();
    private readonly bool _oneAddress;
    private bool _unbound;

    public QuoitConnectionListener(LoopGroup group, EndPoint endPoint)
    {
        _group = group;
        EndPoint = endPoint;
        // What is accepted on one address has that as its own; only another has to be asked for.
        _oneAddress = endPoint is not IPEndPoint ip || !(ip.Address.Equals(IPAddress.Any) || ip.Address.Equals(IPAddress.IPv6Any));
    }

    public EndPoint EndPoint { get; }

    public EndPoint? LocalEndPointOf(int descriptor) => _oneAddress ? EndPoint : Kernel.LocalEndPoint(descriptor);

    /// <summary>A loop accepts for it.</summary>
    public void Add(Loop loop, ulong id)
    {
        lock (_gate)
        {
            _parts.Add((loop, id));
        }
    }

    /// <summary>A connection for whoever accepts next; false if nobody does any more.</summary>
    public bool Offer(QuoitConnection connection) => _accepted.Writer.TryWrite(connection);

    /// <summary>A loop has ended, and so what it accepted for this.</summary>
    public void LoopEnded(Loop loop, Exception? failure)
    {
        ulong[] ids;
        lock (_gate)
        {
            ids = [.. _parts.Where(part => part.Loop == loop).Select(part => part.Id)];
        }
        foreach (var id in ids)
        {
            PartClosed(id, failure);
        }
    }

    /// <summary>One of its loops accepts no more; with the reason, if it was not told to stop.</summary>
    public void PartClosed(ulong id, Exception? failure)
    {
        bool last;
        lock (_gate)
        {
            _parts.RemoveAll(part => part.Id == id);
            last = _parts.Count == 0;
        }
        if (failure is not null)
        {
            _accepted.Writer.TryComplete(failure);
        }
        if (last)
        {
            _stopped.TrySetResult();
        }
    }

    public async ValueTask<ConnectionContext?> AcceptAsync(CancellationToken cancellationToken = default)
    {
        while (await _accepted.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
        {
            if (_accepted.Reader.TryRead(out var connection))
            {
                return connection;
            }
        }
        return null;
    }

    public async ValueTask UnbindAsync(CancellationToken cancellationToken = default)
    {
        (Loop Loop, ulong Id)[] parts;
        lock (_gate)
        {
            parts = _unbound ? [] : [.. _parts];
            _unbound = true;
        }
        foreach (var part in parts)
        {
            if (!part.Loop.TryPost(
                static state =>
                {
                    var (loop, id) = ((Loop, ulong))state!;
                    loop.StopListening(id);
                },
                part))
            {
                PartClosed(part.Id, null);
            }
        }
        if (parts.Length == 0)
        {
            PartClosed(0, null);
        }
        // Kestrel, when it is disposed without having been stopped, unbinds with a token that is cancelled already; as
        // with sockets, that is no reason to leave the address bound. This waits for a turn of each loop.
        await _stopped.Task.ConfigureAwait(false);
        // What was on its way from the loop that accepts to another arrives in that one's next turn.
        await _group.TurnAllAsync().ConfigureAwait(false);
        _group.Forget(this);
        _accepted.Writer.TryComplete();
    }

    public async ValueTask DisposeAsync()
    {
        await UnbindAsync().ConfigureAwait(false);
        while (_accepted.Reader.TryRead(out var connection))
        {
            connection.Abort(new ConnectionAbortedException("The listener was closed before the connection was taken."));
            await connection.DisposeAsync().ConfigureAwait(false);
        }
    }
}
