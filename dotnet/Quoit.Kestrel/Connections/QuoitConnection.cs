using System.Globalization;
using System.IO.Pipelines;
using System.Net;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Loops;

namespace Quoit.Kestrel.Connections;

/// <summary>
/// One connection of a loop, as Kestrel and clients see it. Its two pipes lie between the application and the loop:
/// the loop copies what it received into one, and sends what it finds in the other at the end of its turn. All state
/// but what the application sees belongs to the loop's thread.
/// </summary>
internal sealed partial class QuoitConnection : ConnectionContext
{
    private static long s_lastId = DateTime.UtcNow.Ticks;

    private static readonly Action<object?> s_abort = static state => ((QuoitConnection)state!).AbortOnLoop();

    private static readonly Action<object?> s_tellClosed = static state => ((QuoitConnection)state!).CancelClosed();

    private readonly Loop _loop;
    private readonly ulong _id;
    private readonly CancellationTokenSource _closedSource = new();
    private readonly TaskCompletionSource _closedTold = new();
    private readonly DuplexPipe _originalTransport;

    private string? _connectionId;
    private Exception? _shutdownReason;
    private Task _sending = Task.CompletedTask;
    private Timer? _closedTimer;
    private QuoitConnectionListener? _listener;
    private bool _gone;
    private bool _closedScheduled;
    private bool _disposed;

    public QuoitConnection(Loop loop, ulong id, EndPoint? local, EndPoint? remote)
    {
        _loop = loop;
        _id = id;
        LocalEndPoint = local;
        RemoteEndPoint = remote;
        ConnectionClosed = _closedSource.Token;
        loop.Group.Options.Making?.Invoke();
        var input = new Pipe(loop.InputOptions);
        var output = new Pipe(loop.OutputOptions);
        _received = input.Writer;
        _toSend = output.Reader;
        _flushed = OnFlushed;
        var writer = loop.RunsApplication ? new PromptWriter(output.Writer, loop) : output.Writer;
        Transport = _originalTransport = new DuplexPipe(input.Reader, writer);
    }

    /// <summary>It was accepted for that one, which is told of its end.</summary>
    public void BelongTo(QuoitConnectionListener listener)
    {
        _listener = listener;
        listener.Joined();
    }

    /// <summary>How long its end may wait for the peer.</summary>
    public TimeSpan DrainDeadline => _loop.Group.Options.DrainDeadline;

    public override IDuplexPipe Transport { get; set; }

    public override string ConnectionId
    {
        get => _connectionId ??= Interlocked.Increment(ref s_lastId).ToString("X", CultureInfo.InvariantCulture);
        set => _connectionId = value;
    }

    public override EndPoint? LocalEndPoint { get; set; }

    public override EndPoint? RemoteEndPoint { get; set; }

    public override CancellationToken ConnectionClosed { get; set; }

    /// <summary>Begins to send what the application writes. On the loop's thread.</summary>
    public void Start() => _sending = SendAsync();

    /// <summary>Resets the connection. Without a reason, as Kestrel calls it when the peer has ended in order, it is
    /// closed in order too, without what the application has not flushed yet.</summary>
    public override void Abort(ConnectionAbortedException? abortReason)
    {
        Interlocked.CompareExchange(ref _shutdownReason, abortReason, null);
        _loop.Schedule(s_abort, this);
    }

    private void AbortOnLoop()
    {
        // As with sockets, what was closed in order is not reset any more.
        if (_gone || _closed)
        {
            return;
        }
        if (_shutdownReason is null)
        {
            CloseOnLoop();
            return;
        }
        _loop.Group.Log.ConnectionWriteRst(this, _shutdownReason.Message);
        _loop.Abort(_id);
    }

    /// <summary>The last event: the library knows the connection no more, and all memory that it was lent is free.</summary>
    /// <param name="failure">What the peer or the network did; null if both ends closed in order.</param>
    public void OnClosed(Exception? failure)
    {
        _gone = true;
        _listener?.Left();
        _listener = null;
        if (failure is not null)
        {
            _loop.Group.Log.ConnectionFailed(this, failure.Message);
        }
        CompleteReceived(_shutdownReason ?? failure);
        TellClosed();
        // What waits for the application's bytes, or for the library to take them, finds the connection gone.
        _toSend.CancelPendingRead();
        ResumeSending();
    }

    public override async ValueTask DisposeAsync()
    {
        // Before it looks for the socket that is to be disposed with it, as Socket sets that and then looks here.
        if (!Interlocked.Exchange(ref _disposed, true))
        {
            await CompleteAsync(_originalTransport.Input.CompleteAsync, null);
            await CompleteAsync(_originalTransport.Output.CompleteAsync, null);
            await _sending;
            TellClosed();
            await _closedTold.Task;
            _closedTimer?.Dispose();
            _socket?.Dispose();
            _closedSource.Dispose();
        }
        else
        {
            // Another call is at it, or has ended.
            await _sending;
            await _closedTold.Task;
        }
        await base.DisposeAsync();
    }

    /// <summary>Completes one end of a pipe. The last of the two gives back what is in it, and the pool may fail: what is left to be
    /// done for the connection is done all the same, or it would never be closed.</summary>
    private async ValueTask CompleteAsync(Func<Exception?, ValueTask> complete, Exception? reason)
    {
        try
        {
            await complete(reason);
        }
        catch (Exception failure)
        {
            _loop.Group.Log.MemoryNotReturned(ConnectionId, failure);
        }
    }

    /// <summary>Tells the application, on the thread pool, that no more will come. Once, and behind what it is to read:
    /// it must not take an end in order for an abort.</summary>
    private void TellClosed()
    {
        if (!Interlocked.Exchange(ref _closedScheduled, true))
        {
            _loop.Workers.Schedule(s_tellClosed, this);
        }
    }

    /// <summary>Tells it a moment later, of a peer that has ended in order: Kestrel gives up responses then, also to what came
    /// just before the end, and the loop takes in both at once. Sockets need several calls for that, in which an application
    /// has responded.</summary>
    private void TellClosedLater() => _closedTimer =
        new Timer(static state => ((QuoitConnection)state!).TellClosed(), this, _loop.Group.Options.EndGrace, Timeout.InfiniteTimeSpan);

    private void CancelClosed()
    {
        try
        {
            _closedSource.Cancel();
        }
        catch (AggregateException failure)
        {
            _loop.Group.Log.ClosedCallbackFailed(ConnectionId, failure);
        }
        _closedTold.TrySetResult();
    }

    private sealed class DuplexPipe(PipeReader input, PipeWriter output) : IDuplexPipe
    {
        public PipeReader Input { get; } = input;

        public PipeWriter Output { get; } = output;
    }
}
