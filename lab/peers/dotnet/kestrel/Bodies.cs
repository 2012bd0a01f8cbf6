using System.Globalization;

namespace Lab;

/// <summary>Large bodies, as applications stream them: a piece of a response is written when it is there, and a request is
/// read as it arrives.</summary>
internal static class Bodies
{
    /// <summary>The longest piece, in bytes.</summary>
    private const int LargestChunk = 1024 * 1024;

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

    /// <summary>Reads the request's body and answers its length.</summary>
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
