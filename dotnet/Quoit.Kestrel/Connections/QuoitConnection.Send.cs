using System.Buffers;
using System.IO.Pipelines;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Connections;

// From the application to the library. On the loop's thread, which continues the one method here before its turns, but for
// direct sends.
internal sealed partial class QuoitConnection
{
    /// <summary>Bytes that are copied rather than lent: the copy costs less than to hear of their end.</summary>
    private const int CopyLimit = 16 * 1024;

    /// <summary>Bytes copied of whose end nothing was heard. Past it the next send is lent, which tells of all.</summary>
    private const int CopyBudget = 64 * 1024;

    /// <summary>The most that is lent at once, but for its last piece.</summary>
    private const int LendLimit = 256 * 1024;

    /// <summary>Pieces that are lent, or sent, at once.</summary>
    private const int LendPieces = 128;

    /// <summary>The library's limit on what is queued. It is never reached, so that no lent send is refused: one lent
    /// batch is under way at a time, and copies come before it.</summary>
    public const uint HighWater = 2 * LendLimit;

    private static readonly Action<object?> s_resumeSending = static state => ((QuoitConnection)state!)._sendGate.Open();

    private readonly PipeReader _toSend;
    private readonly Gate _sendGate = new();

    private MemoryHandle[] _lent = [];
    private ulong _lastToken = Loop.TokenFirst;
    private ulong _awaitedToken;
    private int _copied;
    private long _copiedInTurn = -1;
    private unsafe byte* _copyStart;
    private int _copyLength;
    private Queue<(ulong Token, byte[] Bytes)>? _rescued;
    private bool _sendingFailed;
    private bool _closeAsked;
    private bool _closed;

    /// <summary>Whether it was closed with all its bytes in the kernel's hands; it may wait for the peer's end.</summary>
    public bool IsClosedInOrder => _closed && _awaitedToken == 0;

    private async Task SendAsync()
    {
        Exception? unexpected = null;
        try
        {
            while (true)
            {
                var result = await _toSend.ReadAsync();
                var buffer = result.Buffer;
                long sent = 0;
                if (!_loop.OnThread)
                {
                    if (result is { IsCompleted: false, IsCanceled: false })
                    {
                        sent = SendDirectly(buffer);
                        if (sent == buffer.Length)
                        {
                            _toSend.AdvanceTo(buffer.End);
                            continue;
                        }
                    }
                    await _loop.Sends.ReturnAsync();
                }
                if (_gone || result.IsCanceled)
                {
                    if (_closeAsked && !_gone)
                    {
                        await CloseAsync();
                    }
                    break;
                }
                PrepareDirect();
                if (_loop.IsInFlush)
                {
                    sent = TrySend(buffer);
                }
                var rest = sent == 0 ? buffer : buffer.Slice(sent);
                // The last bytes are lent, so that their end is known before the connection is closed.
                if (!rest.IsEmpty && (result.IsCompleted || !TryCopy(rest)) && !await LendAsync(rest))
                {
                    _toSend.AdvanceTo(buffer.Start);
                    break;
                }
                _toSend.AdvanceTo(buffer.End);
                if (result.IsCompleted)
                {
                    await CloseAsync();
                    break;
                }
            }
        }
        catch (Exception failure)
        {
            // The application completed its end with an exception: the peer must not take what it has for the whole.
            unexpected = failure;
            await _loop.Sends.ReturnAsync();
            Interlocked.CompareExchange(ref _shutdownReason, failure, null);
            AbortOnLoop();
        }
        finally
        {
            Interlocked.CompareExchange(
                ref _shutdownReason, new ConnectionAbortedException("The transport has sent everything and closed the connection."), null);
            EndReceiving(_shutdownReason);
            ReleaseDirectSender();
            await CompleteAsync(_toSend.CompleteAsync, unexpected);
        }
    }

    /// <summary>Copies a small send, so that its blocks are free at once. The library copies it in the next turn and
    /// is silent, unless its memory for copies is used up.</summary>
    private unsafe bool TryCopy(in ReadOnlySequence<byte> buffer)
    {
        if (buffer.Length > CopyLimit || _copied + buffer.Length > CopyBudget || _copiedInTurn == _loop.Turn)
        {
            return false;
        }
        var length = (int)buffer.Length;
        var place = _loop.TakeScratch(length);
        if (place is null)
        {
            return false;
        }
        buffer.CopyTo(new Span<byte>(place, length));
        _loop.SendCopied(_id, place, length);
        _copied += length;
        _copiedInTurn = _loop.Turn;
        _copyStart = place;
        _copyLength = length;
        return true;
    }

    /// <summary>Sends what the kernel takes at once, in the midst of the application's flush; returns how many bytes that
    /// is. None while anything goes before them that the library was not given yet, and none past the connection's share of
    /// the turn: what is left is lent, and leaves with the turn.</summary>
    private unsafe long TrySend(in ReadOnlySequence<byte> buffer)
    {
        if (buffer.Length < PromptWriter.Shortest || _copiedInTurn == _loop.Turn || _rescued is { Count: > 0 })
        {
            return 0;
        }
        var list = stackalloc NativePiece[LendPieces];
        var pieces = PinPieces(buffer, list);
        var sent = _loop.TrySend(_id, list, pieces);
        Unpin(pieces);
        return sent;
    }

    /// <summary>Pins the first pieces, at most <see cref="LendPieces"/>, and notes them in the list; returns how many.</summary>
    private unsafe int PinPieces(in ReadOnlySequence<byte> buffer, NativePiece* list)
    {
        var pieces = 0;
        foreach (var segment in buffer)
        {
            if (pieces == LendPieces)
            {
                break;
            }
            if (!segment.IsEmpty)
            {
                AddPiece(segment, pieces, list, segment.Length);
                pieces++;
            }
        }
        return pieces;
    }

    /// <summary>Pins a piece and, where there is a list, notes it there.</summary>
    private unsafe void AddPiece(ReadOnlyMemory<byte> segment, int index, NativePiece* list, int length)
    {
        if (index == _lent.Length)
        {
            Array.Resize(ref _lent, Math.Max(8, 2 * index));
        }
        _lent[index] = segment.Pin();
        if (list is not null)
        {
            list[index] = new NativePiece { Address = _lent[index].Pointer, Length = (nuint)length };
        }
    }

    private void Unpin(int pieces)
    {
        for (var index = 0; index < pieces; index++)
        {
            _lent[index].Dispose();
        }
    }

    /// <summary>Lends the bytes to the library until it has sent them; false if the connection has ended.</summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<bool> LendAsync(ReadOnlySequence<byte> buffer)
    {
        if (!await AwaitCopyAsync())
        {
            return false;
        }
        while (!buffer.IsEmpty)
        {
            var taken = Lend(buffer, out var pieces);
            if (_closeAsked)
            {
                // While this waited for the copy before it.
                CloseBehindQueued();
            }
            await SentAsync(_lastToken);
            // Sent, or the connection is gone: in both cases the memory is free.
            Unpin(pieces);
            if (_gone || _sendingFailed || _closed)
            {
                return false;
            }
            // Nearly always all of it; a slice walks the segments once more.
            if (taken == buffer.Length)
            {
                break;
            }
            buffer = buffer.Slice(taken);
        }
        return true;
    }

    private unsafe long Lend(in ReadOnlySequence<byte> buffer, out int pieces)
    {
        pieces = 0;
        long taken = 0;
        // Without room for a list the first piece goes alone.
        var list = _loop.TakePieces(LendPieces);
        var most = list is null ? 1 : LendPieces;
        foreach (var segment in buffer)
        {
            if (segment.IsEmpty)
            {
                continue;
            }
            // A piece that alone is above the limit is cut: its end is lent next.
            var length = (int)Math.Min(segment.Length, LendLimit);
            AddPiece(segment, pieces, list, length);
            pieces++;
            taken += length;
            if (taken >= LendLimit || pieces == most || length < segment.Length)
            {
                break;
            }
        }
        if (list is null)
        {
            _loop.SendLent(_id, _lent[0].Pointer, (int)taken, ++_lastToken);
        }
        else
        {
            _loop.SendPieces(_id, list, pieces, ++_lastToken);
        }
        return taken;
    }

    /// <summary>Waits until it is known whether this turn's copy was taken: what follows must not overtake it.</summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<bool> AwaitCopyAsync()
    {
        if (_copiedInTurn == _loop.Turn)
        {
            _awaitedToken = 0;
            _sendGate.Close();
            _loop.NotifyAfterTurn(this);
            await _sendGate;
        }
        return !_gone && !_sendingFailed;
    }

    private Gate SentAsync(ulong token)
    {
        _awaitedToken = token;
        _sendGate.Close();
        return _sendGate;
    }

    /// <summary>Closes the connection once the kernel has taken all bytes: a peer that reads slowly still gets them. One that
    /// reads nothing is waited for, but not behind an abort.</summary>
    private async ValueTask CloseAsync()
    {
        if (!await AwaitCopyAsync())
        {
            return;
        }
        if (_copied > 0)
        {
            Fence();
            if (_closeAsked)
            {
                CloseBehindQueued();
            }
            await SentAsync(_lastToken);
        }
        if (!_gone && !_sendingFailed && !_closed)
        {
            CloseBehindQueued();
        }
    }

    /// <summary>What the library was given is sent before the end, or given up at the deadline.</summary>
    private void CloseBehindQueued()
    {
        _closed = true;
        _loop.Group.Log.ConnectionWriteFin(this);
        _loop.Close(_id);
    }

    /// <summary>Closes the connection in order, before the application has completed its end.</summary>
    private void CloseOnLoop()
    {
        if (_awaitedToken != 0)
        {
            CloseBehindQueued();
            return;
        }
        _closeAsked = true;
        _toSend.CancelPendingRead();
    }

    /// <summary>Lends no bytes, which is answered when all before them are sent.</summary>
    private unsafe void Fence() => _loop.SendLent(_id, _copyStart, 0, ++_lastToken);

    /// <summary>All lent sends up to the token are done.</summary>
    public void OnSent(ulong token)
    {
        while (_rescued is not null && _rescued.TryPeek(out var first) && first.Token <= token)
        {
            _rescued.Dequeue();
        }
        if (_awaitedToken != 0 && token >= _awaitedToken)
        {
            _awaitedToken = 0;
            _copied = 0;
            ResumeSending();
        }
    }

    /// <summary>The turn after <see cref="Loop.NotifyAfterTurn"/> is over.</summary>
    public void OnNextTurn()
    {
        if (_awaitedToken == 0)
        {
            ResumeSending();
        }
    }

    /// <summary>The library has no room for a copy, or no longer sends on the connection.</summary>
    public unsafe void OnSendRefused(Refusal refusal, ulong token)
    {
        if (refusal is Refusal.Full or Refusal.TooLarge && token == Loop.TokenCopied)
        {
            // The turn's copies stay in place until all of its events were handled. This is asked of the next turn
            // before anything else of this connection, so that the order is kept.
            var bytes = GC.AllocateUninitializedArray<byte>(_copyLength, pinned: true);
            new ReadOnlySpan<byte>(_copyStart, _copyLength).CopyTo(bytes);
            _rescued ??= new Queue<(ulong, byte[])>();
            _rescued.Enqueue((++_lastToken, bytes));
            _loop.SendLent(_id, Unsafe.AsPointer(ref MemoryMarshal.GetArrayDataReference(bytes)), bytes.Length, _lastToken);
            return;
        }
        // It is closing, or an earlier send has failed, and the end is told next; a lent send is refused for no other reason.
        _sendingFailed = true;
        if (refusal is not (Refusal.Stale or Refusal.Closing or Refusal.Error))
        {
            // With a reason, or it would be closed in order, and the peer would take what it has for the whole.
            Interlocked.CompareExchange(
                ref _shutdownReason, new ConnectionAbortedException($"The library has refused to send: {refusal}."), null);
            AbortOnLoop();
        }
        ResumeSending();
    }

    /// <summary>The socket takes no more. What comes is received, and the end behind it; where nothing is received, as the
    /// application does not read, the connection ends now, as it does over sockets. What is lent is free with that.</summary>
    public void OnSendFailed()
    {
        _sendingFailed = true;
        if (_flushPending || _receivingEnded)
        {
            _loop.Abort(_id);
        }
    }

    private void ResumeSending()
    {
        if (!_sendGate.IsCompleted)
        {
            _loop.Schedule(s_resumeSending, this);
        }
    }
}
