// What gRPC is made of, without its packages: messages with a length before them, both ways at once on one stream of
// HTTP/2, and the status in a trailer. A service of Grpc.AspNetCore runs on Quoit in the same way.
//
//   dotnet run --project dotnet/samples/GrpcShaped
using System.Buffers;
using System.Buffers.Binary;
using System.IO.Pipelines;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Quoit.Kestrel;

const int PrefixLength = 5; // a byte that says whether it is compressed, and the length
const int MostLength = 4 * 1024 * 1024; // of a message, which is kept until it is whole; gRPC's own default

var builder = WebApplication.CreateBuilder(args);
builder.WebHost.UseQuoit();
builder.WebHost.ConfigureKestrel(kestrel => kestrel.ConfigureEndpointDefaults(listen => listen.Protocols = HttpProtocols.Http2));

var app = builder.Build();
app.MapPost("/sample.Echo/Talk", async (HttpContext context) =>
{
    context.Response.ContentType = "application/grpc";
    await context.Response.Body.FlushAsync();
    var request = context.Request.BodyReader;
    var response = context.Response.BodyWriter;
    while (true)
    {
        var result = await request.ReadAsync(context.RequestAborted);
        var buffer = result.Buffer;
        while (TryTakeMessage(ref buffer, out var message))
        {
            foreach (var segment in message)
            {
                response.Write(segment.Span);
            }
        }
        // Everything that came in one read is answered by one flush.
        await response.FlushAsync(context.RequestAborted);
        if (NextLength(buffer) > MostLength)
        {
            context.Response.AppendTrailer("grpc-status", "8"); // RESOURCE_EXHAUSTED
            return;
        }
        request.AdvanceTo(buffer.Start, buffer.End);
        if (result.IsCompleted)
        {
            break;
        }
    }
    context.Response.AppendTrailer("grpc-status", "0");
});
app.Run();

static bool TryTakeMessage(ref ReadOnlySequence<byte> buffer, out ReadOnlySequence<byte> message)
{
    message = default;
    var length = PrefixLength + NextLength(buffer);
    if (buffer.Length < length)
    {
        return false;
    }
    message = buffer.Slice(0, length);
    buffer = buffer.Slice(length);
    return true;
}

// What the prefix of the next message says; 0 while it has not come.
static long NextLength(ReadOnlySequence<byte> buffer)
{
    if (buffer.Length < PrefixLength)
    {
        return 0;
    }
    Span<byte> prefix = stackalloc byte[PrefixLength];
    buffer.Slice(0, PrefixLength).CopyTo(prefix);
    return BinaryPrimitives.ReadUInt32BigEndian(prefix[1..]);
}
