using System.Buffers;
using System.IO.Pipelines;
using System.Runtime.CompilerServices;

namespace Quoit.Kestrel.Connections;

// From the library to the application. On the loop's thread.
internal sealed partial class QuoitConnection
{
    private readonly PipeWriter _received;
    private readonly Action _flushed;

    private ValueTaskAwaiter<FlushResult> _flushing;
    private bool _flushPending;
    private bool _unflushed;
    private bool _receivingEnded;
    private volatile bool _keepsReceived;
    private volatile Exception? _endBehindReceived;

    /// <summary>What has ended receiving, for who has read all that came before it. See <see cref="KeepReceived"/>.</summary>
    public Exception? EndBehindReceived => _endBehindReceived;

    /// <summary>From now on a failure ends what is received in order: what came before it can be read, as from a socket. A pipe
    /// that is completed with an exception would throw that away.</summary>
    public void KeepReceived() => _keepsReceived = true;

    /// <summary>Takes a copy of what was received; the application sees it by <see cref="FlushReceived"/>.</summary>
    public void OnData(ReadOnlySpan<byte> data)
    {
        if (_receivingEnded)
        {
            return;
        }
        try
        {
            _received.Write(data);
        }
        catch (Exception failure)
        {
            // The application's pool has no block for it. As over sockets that ends this connection, and no other.
            _loop.Group.Log.ReceivingStopped(this, failure.Message);
            StopReceiving(failure);
            return;
        }
        if (!_unflushed)
        {
            _unflushed = true;
            // While a flush waits for the application, its end brings the next.
            if (!_flushPending)
            {
                _loop.NotifyReceived(this);
            }
        }
    }

    /// <summary>Gives the application what was received in this turn.</summary>
    public void FlushReceived()
    {
        if (_receivingEnded || !_unflushed)
        {
            return;
        }
        _unflushed = false;
        ValueTaskAwaiter<FlushResult> flushing;
        try
        {
#pragma warning disable CA2012 // The awaiter is used once: here if it has completed, otherwise by OnFlushed.
            flushing = _received.FlushAsync().GetAwaiter();
#pragma warning restore CA2012
        }
        catch (Exception failure)
        {
            // The application completed its end with an exception, which is thrown here.
            _loop.Group.Log.ReceivingStopped(this, failure.Message);
            StopReceiving(null);
            return;
        }
        if (flushing.IsCompleted)
        {
            TakeResult(flushing);
            return;
        }
        _flushPending = true;
        _loop.Group.Log.ConnectionPaused(this);
        PauseReceiving();
        _flushing = flushing;
        _flushing.UnsafeOnCompleted(_flushed);
    }

    /// <summary>The application has read enough to go on.</summary>
    private void OnFlushed()
    {
        _flushPending = false;
        var flushing = _flushing;
        _flushing = default;
        if (!TakeResult(flushing) || _gone || _receivingEnded)
        {
            return;
        }
        if (_unflushed)
        {
            // What came before the pause took effect. It may be too much again.
            FlushReceived();
        }
        if (!_flushPending && !_receivingEnded)
        {
            _loop.Group.Log.ConnectionResumed(this);
            _loop.Resume(_id);
        }
    }

    /// <summary>Nothing is received until the application has read. One that takes no more is ended instead: the end of it would
    /// not be found, and who waits to send would wait on.</summary>
    private void PauseReceiving()
    {
        if (_sendingFailed)
        {
            _loop.Abort(_id);
        }
        else
        {
            _loop.Pause(_id);
        }
    }

    private bool TakeResult(ValueTaskAwaiter<FlushResult> awaiter)
    {
        try
        {
            var result = awaiter.GetResult();
            if (result is { IsCompleted: false, IsCanceled: false })
            {
                return true;
            }
        }
        catch (Exception failure)
        {
            _loop.Group.Log.ReceivingStopped(this, failure.Message);
        }
        StopReceiving(null);
        return false;
    }

    /// <summary>The application reads no more, for this reason if it does not know it: what the peer still sends stays in its
    /// socket.</summary>
    private void StopReceiving(Exception? failure)
    {
        if (!_gone && !_receivingEnded)
        {
            PauseReceiving();
        }
        EndReceiving(_shutdownReason ?? failure);
    }

    /// <summary>The peer has ended its direction. Sending goes on.</summary>
    public void OnEndOfStream()
    {
        _loop.Group.Log.ConnectionReadFin(this);
        if (CompleteReceived(_shutdownReason))
        {
            TellClosedLater();
        }
    }

    private void EndReceiving(Exception? reason)
    {
        if (CompleteReceived(reason))
        {
            TellClosed();
        }
    }

    /// <summary>Completes what the application reads from. Returns whether it was not completed before.</summary>
    private bool CompleteReceived(Exception? reason)
    {
        if (_receivingEnded)
        {
            return false;
        }
        _receivingEnded = true;
        if (_keepsReceived)
        {
            _endBehindReceived = reason;
            reason = null;
        }
        try
        {
            _received.Complete(reason);
        }
        catch (Exception failure)
        {
            // Behind the application's own end it gives back what nobody has read.
            _loop.Group.Log.MemoryNotReturned(ConnectionId, failure);
        }
        return true;
    }
}
