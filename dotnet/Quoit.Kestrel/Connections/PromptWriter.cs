using System.IO.Pipelines;
using Quoit.Kestrel.Loops;

namespace Quoit.Kestrel.Connections;

/// <summary>
/// The application's end of an output pipe whose handlers run on the loop. What is flushed there and is worth a call of its
/// own is sent before the flush returns: it is still in the processor's cache, and the flush has ended. Left to the end of
/// the turn, as shorter ones are, it would meet the pipe's limit, and Kestrel continues a handler that waits for a flush on
/// the thread pool, whatever the pipe's scheduler.
/// </summary>
internal sealed class PromptWriter(PipeWriter inner, Loop loop) : PipeWriter
{
    /// <summary>Bytes from which a flush is sent at once: what the library takes at once on either engine.</summary>
    public const int Shortest = 32 * 1024;

    public override bool CanGetUnflushedBytes => inner.CanGetUnflushedBytes;

    public override long UnflushedBytes => inner.UnflushedBytes;

    public override void Advance(int bytes) => inner.Advance(bytes);

    public override Memory<byte> GetMemory(int sizeHint = 0) => inner.GetMemory(sizeHint);

    public override Span<byte> GetSpan(int sizeHint = 0) => inner.GetSpan(sizeHint);

    public override ValueTask<FlushResult> FlushAsync(CancellationToken cancellationToken = default)
    {
        if (inner.UnflushedBytes < Shortest || !loop.TryBeginFlush())
        {
            return inner.FlushAsync(cancellationToken);
        }
        try
        {
            return inner.FlushAsync(cancellationToken);
        }
        finally
        {
            loop.EndFlush();
        }
    }

    public override ValueTask<FlushResult> WriteAsync(ReadOnlyMemory<byte> source, CancellationToken cancellationToken = default)
    {
        if (inner.UnflushedBytes + source.Length < Shortest || !loop.TryBeginFlush())
        {
            return inner.WriteAsync(source, cancellationToken);
        }
        try
        {
            return inner.WriteAsync(source, cancellationToken);
        }
        finally
        {
            loop.EndFlush();
        }
    }

    public override void CancelPendingFlush() => inner.CancelPendingFlush();

    public override void Complete(Exception? exception = null) => inner.Complete(exception);

    public override ValueTask CompleteAsync(Exception? exception = null) => inner.CompleteAsync(exception);
}
