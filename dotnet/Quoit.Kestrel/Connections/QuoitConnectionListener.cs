using System.Net;
using System.Threading.Channels;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Connections;

/// <summary>A bound endpoint, and the connections that its loops accepted and nobody took yet.</summary>
internal sealed class QuoitConnectionListener : IConnectionListener
{
    /// <summary>
    /// Connections that nobody took yet, from which on the loops accept no more, and down to which they go on: who connects
    /// meanwhile waits in the kernel's backlog, as with sockets. Those that it has accepted before it hears of it come on top.
    /// </summary>
    internal const int MostWaiting = 256;
    private const int LeastWaiting = MostWaiting / 2;

    private readonly LoopGroup _group;
    private readonly Channel<QuoitConnection> _accepted =
        Channel.CreateUnbounded<QuoitConnection>(new UnboundedChannelOptions { AllowSynchronousContinuations = false });

    private readonly TaskCompletionSource _stopped = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly List<(Loop Loop, ulong Id)> _parts = [];
    private readonly Lock _gate = new();
    private readonly bool _oneAddress;
    private readonly AcceptBrake _brake;
    private bool _unbound;
    private int _open;
    private TaskCompletionSource? _noneOpen;

    public QuoitConnectionListener(LoopGroup group, EndPoint endPoint)
    {
        _group = group;
        _brake = new AcceptBrake(MostWaiting, LeastWaiting, () => _accepted.Reader.Count);
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
            if (_brake.IsHeld)
            {
                loop.PauseListening(id);
            }
        }
    }

    /// <summary>A connection for whoever accepts next; false if nobody does any more.</summary>
    public bool Offer(QuoitConnection connection)
    {
        if (!_accepted.Writer.TryWrite(connection))
        {
            return false;
        }
        if (_brake.IsDueAfterOffer())
        {
            HoldOrGoOn();
        }
        return true;
    }

    /// <summary>A connection of it is there.</summary>
    public void Joined()
    {
        lock (_gate)
        {
            _open++;
        }
    }

    /// <summary>A connection of it has gone.</summary>
    public void Left()
    {
        lock (_gate)
        {
            if (--_open == 0)
            {
                _noneOpen?.TrySetResult();
            }
        }
    }

    /// <summary>Waits until its connections have gone, or for so long.</summary>
    private async Task WaitForNoneAsync(TimeSpan limit, CancellationToken cancellationToken)
    {
        Task none;
        lock (_gate)
        {
            if (_open == 0)
            {
                return;
            }
            _noneOpen = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            none = _noneOpen.Task;
        }
        await none.WaitAsync(limit, cancellationToken).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
    }

    /// <summary>Has the loops accept no more if many connections wait, or go on if few do.</summary>
    private void HoldOrGoOn()
    {
        lock (_gate)
        {
            if (_unbound || !_brake.Change())
            {
                return;
            }
            foreach (var part in _parts)
            {
                // A loop that has ended accepts nothing anyway.
                _ = part.Loop.TryPost(_brake.IsHeld ? s_pause : s_resume, part);
            }
        }
    }

    private static readonly Action<object?> s_pause = static state =>
    {
        var (loop, id) = ((Loop, ulong))state!;
        loop.PauseListening(id);
    };

    private static readonly Action<object?> s_resume = static state =>
    {
        var (loop, id) = ((Loop, ulong))state!;
        loop.ResumeListening(id);
    };

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
        if (ids.Length > 0)
        {
            // Ended without a failure, it was disposed with the transport, and who waits for a connection waits in vain.
            _accepted.Writer.TryComplete();
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
                if (_brake.IsDueAfterTake())
                {
                    HoldOrGoOn();
                }
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
        if (parts.Length > 0 && _group.Options.KeepIdle > TimeSpan.Zero)
        {
            await WaitForNoneAsync(_group.Options.KeepIdle, cancellationToken).ConfigureAwait(false);
        }
    }

    public async ValueTask DisposeAsync()
    {
        // What KeepIdle waits for is no matter of a disposal.
        await UnbindAsync(new CancellationToken(canceled: true)).ConfigureAwait(false);
        while (_accepted.Reader.TryRead(out var connection))
        {
            connection.Abort(new ConnectionAbortedException("The listener was closed before the connection was taken."));
            await connection.DisposeAsync().ConfigureAwait(false);
        }
    }
}
