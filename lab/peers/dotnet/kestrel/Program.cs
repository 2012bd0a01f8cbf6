// The program kestrel serves by ASP.NET Core's server, on the transport that is asked for:
//
//   kestrel http|h2c|websocket [--listen HOST:PORT] [--loops N] [--transport NAME] [--app minimal|bare]
//                              [--tls on|off] [--client NAME] [--metrics HOST:PORT]
//
// Transports: sockets and sockets-inline (UnsafePreferInlineScheduling) are Kestrel's own; quoit-uring, quoit-epoll,
// and the same with -inline (UnsafeInlineOnLoop), are Quoit's. The application is a minimal API, or a bare
// IHttpApplication without routing, middleware or dependency injection. Both answer /plaintext, /json, /healthz and
// /bytes/N, which is streamed. The minimal API also answers /download/BYTES/CHUNK with so many bytes, flushed in pieces of
// CHUNK, and a POST to /upload with the length of its body. With --client, /client asks for /plaintext of this same server
// by HttpClient on that transport. --metrics shows what the runtime has compiled, and what Quoit's loops count; a line on
// standard error says where. h2c is the minimal API for clients that know beforehand to speak HTTP/2 without TLS; it
// also answers /, once a request's body has been read. websocket is the minimal API with messages over WebSocket at /, which
// it sends back.
//
//   kestrel load --connect HOST:PORT --seconds N [--warm-up N] [--connections N] [--handshakes on|off]
//
// makes load over TLS: requests on connections that are kept, or a new handshake for each. It announces its window, which
// follows on the warm-up without a break, as `quoit load --announce` does.
using System.Net;
using System.Runtime.InteropServices;
using Lab;

if (args is ["load", ..])
{
    return await Load.RunAsync(args);
}
if (Arguments.Parse(args) is not { } arguments)
{
    return 2;
}
using var ended = new CancellationTokenSource();
void End(PosixSignalContext context)
{
    context.Cancel = true;
    ended.Cancel();
}
using var terminate = PosixSignalRegistration.Create(PosixSignal.SIGTERM, End);
using var interrupt = PosixSignalRegistration.Create(PosixSignal.SIGINT, End);
try
{
    using var metrics = arguments.Metrics is { } place ? new Metrics(place, arguments.Loops) : null;
    void Ready(EndPoint address)
    {
        metrics?.WarmUp();
        Console.WriteLine(
            $"listening on {address} engine=kestrel-{arguments.Transport} loops={arguments.Loops} version={Environment.Version}"
            + (arguments.Tls ? " tls=on" : "") + (arguments.Client is { } client ? $" client={client}" : ""));
    }
    await (arguments.Bare ? Bare.ServeAsync(arguments, Ready, ended.Token) : Minimal.ServeAsync(arguments, Ready, ended.Token));
    return 0;
}
catch (Exception failure)
{
    Console.Error.WriteLine($"kestrel: serving on {arguments.Listen}: {failure.Message}");
    return 1;
}
