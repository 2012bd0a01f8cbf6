using System.Buffers;
using System.Runtime.CompilerServices;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Connections;

// Sending on another thread than the loop's, which sleeps meanwhile. Only the one method that sends comes here, so that of
// the connection's state it may use what is its alone. All the rest may change at any time.
internal sealed partial class QuoitConnection
{
    /// <summary>Sends that would have been direct, behind which it is worth the memory that they take.</summary>
    private const int MissesBeforeDirect = 2;

    private nint _directSender;
    private int _directMisses;

    /// <summary>Sends what the kernel takes at once, and returns how many bytes that is. The library sends none while the loop
    /// is awake, or has anything of this connection that was not sent.</summary>
    [SkipLocalsInit]
    private unsafe long SendDirectly(in ReadOnlySequence<byte> buffer)
    {
        if (_directSender == 0)
        {
            _directMisses += _directMisses < MissesBeforeDirect ? 1 : 0;
            return 0;
        }
        var list = stackalloc NativePiece[LendPieces];
        var pieces = PinPieces(buffer, list);
        var sent = NativeMethods.DirectSenderTrySend(_directSender, list, (nuint)pieces);
        Unpin(pieces);
        return Math.Max(0, sent);
    }

    /// <summary>Makes sends direct from now on, once enough could have been. On the loop's thread.</summary>
    private void PrepareDirect()
    {
        if (_directMisses == MissesBeforeDirect)
        {
            _directSender = _loop.DirectSender(_id);
            // One that sends no more is not asked again.
            _directMisses++;
        }
    }

    /// <summary>Behind the last send.</summary>
    private void ReleaseDirectSender()
    {
        NativeMethods.DirectSenderRelease(_directSender);
        _directSender = 0;
    }
}
