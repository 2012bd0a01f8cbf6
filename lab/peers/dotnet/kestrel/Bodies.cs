using System.Buffers;
using System.Globalization;
using Microsoft.AspNetCore.Http.Features;

namespace Lab;

/// <summary>Large bodies, as applications stream them: a piece of a response is written when it is there, and a request is
/// read as it arrives.</summary>
internal static class Bodies
{
    /// <summary>The longest piece, in bytes.</summary>
    private const int LargestChunk = 1024 * 1024;

    /// <summary>The most that <c>/bytes/N</c> answers.</summary>
    private const long MostBytes = 1_000_000_000_000;

    /// <summary>What <c>/bytes/N</c> is flushed by.</summary>
    private const int BytesChunk = 64 * 1024;

    /// <summary>The bytes repeat with this period. It is a prime, so that pieces of a usual length differ, and one that is
    /// lost, doubled or moved shows.</summary>
    private const int Period = 251;

    private static readonly byte[] s_content =
        [.. Enumerable.Range(0, LargestChunk + Period).Select(static at => (byte)(at % Period))];

    /// <summary>Answers so many bytes, in pieces that are flushed one by one.</summary>
    public static async Task DownloadAsync(HttpContext context, long bytes, int chunk)
    {
        var response = context.Response;
        if (bytes < 0 || chunk is < 1 or > LargestChunk)
        {
            response.StatusCode = StatusCodes.Status400BadRequest;
            return;
        }
        response.Headers.Server = "quoit";
        response.ContentType = "application/octet-stream";
        response.ContentLength = bytes;
        for (long at = 0; at < bytes; at += chunk)
        {
            var piece = s_content.AsMemory((int)(at % Period), (int)Math.Min(chunk, bytes - at));
            await response.Body.WriteAsync(piece, context.RequestAborted);
        }
    }

    /// <summary>The N of <c>/bytes/N</c>; false if there is none, or it is out of range.</summary>
    public static bool TryParseLength(ReadOnlySpan<char> text, out long bytes) =>
        long.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out bytes) && bytes <= MostBytes;

    /// <summary>Writes so many bytes to a response, no faster than its client takes them.</summary>
    public static async Task WriteAsync(IHttpResponseBodyFeature body, long bytes, CancellationToken aborted)
    {
        // Once the head is begun, the body is written behind it without a copy in between.
        await body.StartAsync(aborted);
        for (long at = 0; at < bytes; at += BytesChunk)
        {
            body.Writer.Write(s_content.AsSpan((int)(at % Period), (int)Math.Min(BytesChunk, bytes - at)));
            var flushed = await body.Writer.FlushAsync(aborted);
            if (flushed.IsCompleted)
            {
                // The client has gone.
                return;
            }
        }
    }

    /// <summary>Answers so many bytes by <see cref="WriteAsync"/>.</summary>
    public static async Task BytesAsync(HttpContext context, string text)
    {
        var response = context.Response;
        if (!TryParseLength(text, out var bytes))
        {
            response.StatusCode = StatusCodes.Status404NotFound;
            return;
        }
        response.Headers.Server = "quoit";
        response.ContentType = "application/octet-stream";
        response.ContentLength = bytes;
        await WriteAsync(context.Features.GetRequiredFeature<IHttpResponseBodyFeature>(), bytes, context.RequestAborted);
    }

    /// <summary>Answers once the request's body has been read.</summary>
    public static async Task HelloAsync(HttpContext context)
    {
        await context.Request.BodyReader.CopyToAsync(Stream.Null, context.RequestAborted);
        await context.Response.WriteAsync("hello", context.RequestAborted);
    }

    /// <summary>Reads the request's body and returns its length.</summary>
    public static async Task UploadAsync(HttpContext context)
    {
        var reader = context.Request.BodyReader;
        var length = 0L;
        var ended = false;
        while (!ended)
        {
            var read = await reader.ReadAsync(context.RequestAborted);
            length += read.Buffer.Length;
            reader.AdvanceTo(read.Buffer.End);
            ended = read.IsCompleted;
        }
        context.Response.Headers.Server = "quoit";
        context.Response.ContentType = "text/plain";
        await context.Response.WriteAsync(length.ToString(CultureInfo.InvariantCulture), context.RequestAborted);
    }
}
