using System.Buffers;
using System.IO.Pipelines;
using System.Net.Sockets;
using System.Runtime.ExceptionServices;
using Microsoft.AspNetCore.Connections;

namespace Quoit.Kestrel.Connections;

/// <summary>A connection as a stream that owns it. Every write is flushed.</summary>
internal sealed class ConnectionStream(ConnectionContext connection) : Stream
{
    private readonly PipeReader _input = connection.Transport.Input;
    private readonly PipeWriter _output = connection.Transport.Output;
    private readonly Lock _reading = new();
    private volatile bool _isWriting;
    private bool _disposed;

    /// <summary>A connection as a stream. What it receives before a failure is read before that is told.</summary>
    public static ConnectionStream Over(ConnectionContext connection)
    {
        (connection as QuoitConnection)?.KeepReceived();
        return new ConnectionStream(connection);
    }

    public override bool CanRead => true;

    public override bool CanWrite => true;

    public override bool CanSeek => false;

    public override long Length => throw new NotSupportedException();

    public override long Position
    {
        get => throw new NotSupportedException();
        set => throw new NotSupportedException();
    }

    public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
    {
        ObjectDisposedException.ThrowIf(Volatile.Read(ref _disposed), this);
        ReadResult result;
        try
        {
            result = await _input.ReadAsync(cancellationToken).ConfigureAwait(false);
            if (result.IsCompleted && result.Buffer.IsEmpty && connection is QuoitConnection { EndBehindReceived: { } end })
            {
                Take(result.Buffer, default);
                ExceptionDispatchInfo.Throw(end);
            }
        }
        catch (Exception failure) when (IsOfConnection(failure, cancellationToken))
        {
            throw new IOException($"Nothing more can be received: {failure.Message}", failure);
        }
        return Take(result.Buffer, buffer);
    }

    /// <summary>Copies what there is room for. Not while another thread disposes the stream, as HttpClient does to cancel a request: that
    /// returns the blocks, and others write to them.</summary>
    private int Take(ReadOnlySequence<byte> received, Memory<byte> buffer)
    {
        lock (_reading)
        {
            ObjectDisposedException.ThrowIf(_disposed, this);
            // A read of nothing waits until there is something, and takes none of it.
            var taken = received.Slice(0, Math.Min(buffer.Length, received.Length));
            var length = (int)taken.Length;
            taken.CopyTo(buffer.Span);
            _input.AdvanceTo(taken.End);
            return length;
        }
    }

    /// <summary>Whether this call is the one that ends the connection. No read is at its memory then, and none will be.</summary>
    private bool IsFirstDisposal()
    {
        lock (_reading)
        {
            var first = !_disposed;
            _disposed = true;
            return first;
        }
    }

    /// <summary>Whether the connection has failed in a way that is none of a stream's: those of the kernel are inside an IOException
    /// there, and one that was aborted was not cancelled by whoever reads or writes. HttpClient takes them for what they are.</summary>
    private static bool IsOfConnection(Exception failure, CancellationToken cancellation) =>
        failure is SocketException || (failure is OperationCanceledException && !cancellation.IsCancellationRequested);

    public override Task<int> ReadAsync(byte[] buffer, int offset, int count, CancellationToken cancellationToken) =>
        ReadAsync(buffer.AsMemory(offset, count), cancellationToken).AsTask();

    public override async ValueTask WriteAsync(ReadOnlyMemory<byte> buffer, CancellationToken cancellationToken = default)
    {
        ObjectDisposedException.ThrowIf(Volatile.Read(ref _disposed), this);
        FlushResult result;
        _isWriting = true;
        try
        {
            result = await _output.WriteAsync(buffer, cancellationToken).ConfigureAwait(false);
        }
        catch (Exception failure) when (IsOfConnection(failure, cancellationToken))
        {
            throw new IOException($"Nothing more can be sent: {failure.Message}", failure);
        }
        finally
        {
            _isWriting = false;
        }
        if (result.IsCompleted)
        {
            throw new IOException("The connection has closed; nothing more can be sent.");
        }
    }

    public override Task WriteAsync(byte[] buffer, int offset, int count, CancellationToken cancellationToken) =>
        WriteAsync(buffer.AsMemory(offset, count), cancellationToken).AsTask();

    public override Task FlushAsync(CancellationToken cancellationToken) => Task.CompletedTask;

    public override void Flush()
    {
    }

    public override int Read(byte[] buffer, int offset, int count) =>
        ReadAsync(buffer.AsMemory(offset, count)).AsTask().GetAwaiter().GetResult();

    public override void Write(byte[] buffer, int offset, int count) =>
        WriteAsync(buffer.AsMemory(offset, count)).AsTask().GetAwaiter().GetResult();

    public override long Seek(long offset, SeekOrigin origin) => throw new NotSupportedException();

    public override void SetLength(long value) => throw new NotSupportedException();

    public override async ValueTask DisposeAsync()
    {
        if (IsFirstDisposal())
        {
            await EndAsync().ConfigureAwait(false);
        }
        await base.DisposeAsync().ConfigureAwait(false);
    }

    protected override void Dispose(bool disposing)
    {
        if (disposing && IsFirstDisposal())
        {
            // HttpClient gives up connections in this way. What is left to be done is done behind it.
            _ = EndAsync();
        }
        base.Dispose(disposing);
    }

    /// <summary>Ends the connection when what was written has been sent. A peer that does not take it in time is given up:
    /// whoever disposes a stream has nothing left to do that with. So is at once what a write waits for, which HttpClient
    /// ends in this way.</summary>
    private async Task EndAsync()
    {
        if (_isWriting)
        {
            Abort();
        }
        var ending = connection.DisposeAsync().AsTask();
        if (connection is QuoitConnection { DrainDeadline: var limit })
        {
            await ending.WaitAsync(limit).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            if (!ending.IsCompleted)
            {
                Abort();
            }
        }
        await ending.ConfigureAwait(false);
    }

    private void Abort() => connection.Abort(
        new ConnectionAbortedException("The stream was disposed, and the peer has not taken what was written."));
}
