using System.Buffers;
using System.Runtime.InteropServices;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Loops;

// Commands for the next turn. All of this is for the loop's thread.
internal sealed unsafe partial class Loop
{
    private const int CommandRoom = 2048;

    /// <summary>Tokens below the first lent send of a connection.</summary>
    public const ulong TokenOther = 1, TokenCopied = 2, TokenFirst = 16;

    /// <summary>Tokens of connects have this bit.</summary>
    private const ulong ConnectBit = 1UL << 63;

    private static readonly Action<object?> s_connect = static state => ((PendingConnect)state!).Begin();

    /// <summary>Memory for what one turn reads. A small send that finds no room is lent instead, and what is lent without a
    /// list goes piece by piece.</summary>
    private readonly byte* _scratch;
    private readonly int _scratchRoom;
    private readonly Dictionary<ulong, PendingConnect> _connects = [];

    private NativeCommand* _commands;
    private int _commandRoom;
    private int _commandCount;
    private int _scratchUsed;
    private bool _crowded;

    /// <summary>Whether the connections were told everything of the turns so far.</summary>
    private bool _isTold;
    private ulong _lastConnect;

    private ref NativeCommand Push(CommandKind kind, ulong target, ulong token)
    {
        if (_commandCount == _commandRoom)
        {
            _commandRoom *= 2;
            _commands = (NativeCommand*)NativeMemory.Realloc(_commands, (nuint)(_commandRoom * sizeof(NativeCommand)));
        }
        ref var command = ref _commands[_commandCount++];
        command = default;
        command.Kind = kind;
        command.Target = target;
        command.Token = token;
        return ref command;
    }

    public void Abort(ulong connection) => Push(CommandKind.Abort, connection, TokenOther);

    /// <summary>Aborts an attempt to connect, if it has an id already. Also behind the end of the loop, elsewhere: then there
    /// is nothing to abort, and no memory for the command.</summary>
    public void GiveUp(ulong connection)
    {
        if (connection != 0 && !HasEnded)
        {
            Abort(connection);
        }
    }

    public void Pause(ulong connection) => Push(CommandKind.Pause, connection, TokenOther);

    public void Resume(ulong connection) => Push(CommandKind.Resume, connection, TokenOther);

    /// <summary>Closes it when all that is queued is sent, and resets it when the peer's end has not come in time.</summary>
    public void Close(ulong connection) => Push(CommandKind.Close, connection, TokenOther).TimeNs = -1;

    /// <summary>Room for bytes that the next turn copies; null if there is none left.</summary>
    public byte* TakeScratch(int length)
    {
        if (_scratchRoom - _scratchUsed < length)
        {
            return null;
        }
        var place = _scratch + _scratchUsed;
        _scratchUsed += length;
        return place;
    }

    /// <summary>Sends bytes of <see cref="TakeScratch"/>. The connection is told only if they are refused.</summary>
    public void SendCopied(ulong connection, byte* data, int length)
    {
        ref var command = ref Push(CommandKind.Send, connection, TokenCopied);
        command.Data = data;
        command.Length = (uint)length;
    }

    /// <summary>Sends memory that stays as it is until the connection is told that sends up to the token are done, or
    /// of its end.</summary>
    public void SendLent(ulong connection, void* data, int length, ulong token)
    {
        ref var command = ref Push(CommandKind.Send, connection, token);
        command.Flags = CommandFlags.Borrowed;
        command.Data = data;
        command.Length = (uint)length;
    }

    /// <summary>Room for a list of so many pieces, which the next turn reads; null if there is none left.</summary>
    public NativePiece* TakePieces(int count)
    {
        _scratchUsed = (_scratchUsed + sizeof(void*) - 1) & -sizeof(void*);
        return (NativePiece*)TakeScratch(count * sizeof(NativePiece));
    }

    /// <summary>Sends the first pieces of the list that was taken last, as one send: their memory stays as it is until the
    /// connection is told that sends up to the token are done, or of its end.</summary>
    public void SendPieces(ulong connection, NativePiece* pieces, int count, ulong token)
    {
        ref var command = ref Push(CommandKind.SendGathered, connection, token);
        command.Data = pieces;
        command.Length = (uint)count;
        // What the list did not need.
        _scratchUsed = (int)((byte*)(pieces + count) - _scratch);
    }

    /// <summary>Sends what the kernel takes at once of these pieces, and returns how many bytes that is; 0 if none, also if
    /// the connection sends no more. Commands that no turn has taken are overtaken.</summary>
    public long TrySend(ulong connection, NativePiece* pieces, int count) =>
        Math.Max(0, NativeMethods.TrySend(_handle, connection, pieces, (nuint)count));

    /// <summary>What sends on a connection from other threads, to be released; 0 if the connection sends no more.</summary>
    public nint DirectSender(ulong connection)
    {
        nint sender;
        return NativeMethods.LoopDirectSender(_handle, connection, &sender) < 0 ? 0 : sender;
    }

    /// <summary>Calls <see cref="QuoitConnection.OnNextTurn"/> when the turn to come has told everything.</summary>
    public void NotifyAfterTurn(QuoitConnection connection) => _afterTurn.Add(connection);

    /// <summary>Calls <see cref="QuoitConnection.FlushReceived"/> when all events of this turn were handled.</summary>
    public void NotifyReceived(QuoitConnection connection) => _received.Add(connection);

    /// <summary>A connection's descriptor, which stays the library's; negative once it is gone.</summary>
    public int Descriptor(ulong connection) => NativeMethods.ConnectionFd(_handle, connection);

    /// <summary>Whether the library's loop is gone, behind which the last that was posted is run.</summary>
    public bool HasEnded => _closed;

    /// <summary>Begins to accept from a socket, which the library owns from here on.</summary>
    public ulong Listen(nint socket, ReadOnlySpan<nint> remotes)
    {
        ulong listener;
        fixed (nint* first = remotes)
        {
            var options = new NativeListenOptions
            {
                Size = (uint)sizeof(NativeListenOptions),
                Accept = remotes.Length > 1 ? AcceptKind.Spread : AcceptKind.Connections,
                Remotes = remotes.Length > 1 ? first : null,
                RemoteCount = remotes.Length > 1 ? (uint)remotes.Length : 0,
                Stream = _group.StreamOptions,
            };
            var code = NativeMethods.Listen(_handle, socket, &options, &listener);
            if (code < 0)
            {
                throw Errno.ToException(code, NativeText.LastError());
            }
        }
        return listener;
    }

    /// <summary>Leaves who connects in the kernel's backlog.</summary>
    public void PauseListening(ulong listener) => Push(CommandKind.PauseListening, listener, TokenOther);

    public void ResumeListening(ulong listener) => Push(CommandKind.ResumeListening, listener, TokenOther);

    public void StopListening(ulong listener) => Push(CommandKind.StopListening, listener, TokenOther);

    /// <summary>Asks for a connection; what becomes of it is told to <paramref name="pending"/>.</summary>
    public void Connect(PendingConnect pending)
    {
        // While it ends it gives up no more, and would wait for this.
        if (_closed || _stopping)
        {
            if (pending.Descriptor >= 0)
            {
                Kernel.CloseDescriptor(pending.Descriptor);
            }
            pending.Fail(new ObjectDisposedException(nameof(QuoitTransportFactory)));
            return;
        }
        var token = ConnectBit | ++_lastConnect;
        _connects.Add(token, pending);
        if (pending.Descriptor >= 0)
        {
            ref var attach = ref Push(CommandKind.Attach, 0, token);
            attach.Descriptor = pending.Descriptor;
            return;
        }
        // The options and the address are read when the turn takes the command.
        var place = TakeScratch(sizeof(NativeConnectOptions) + pending.Address.Length + 8);
        if (place is null)
        {
            // Others have it, sends among them. It is free when the turn to come has told everything.
            _connects.Remove(token);
            _own.Add(new WorkItem(s_connect, pending));
            return;
        }
        var options = (NativeConnectOptions*)(((nuint)place + 7) & ~(nuint)7);
        var address = (byte*)(options + 1);
        pending.Address.CopyTo(new Span<byte>(address, pending.Address.Length));
        *options = new NativeConnectOptions
        {
            Size = (uint)sizeof(NativeConnectOptions),
            Address = address,
            AddressLength = (uint)pending.Address.Length,
            TimeoutNs = -1,
            Stream = _group.StreamOptions,
        };
        ref var command = ref Push(CommandKind.Connect, 0, token);
        command.Data = options;
        command.Length = (uint)sizeof(NativeConnectOptions);
    }

    /// <summary>Closes the descriptors that no turn will take over any more.</summary>
    private void CloseUntaken()
    {
        foreach (ref var command in new Span<NativeCommand>(_commands, _commandCount))
        {
            if (command.Kind == CommandKind.Attach)
            {
                Kernel.CloseDescriptor(command.Descriptor);
            }
        }
        _commandCount = 0;
    }

    private void FailConnects(Exception reason)
    {
        foreach (var pending in _connects.Values.ToArray())
        {
            pending.Fail(reason);
        }
        _connects.Clear();
    }
}
