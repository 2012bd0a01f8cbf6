using System.Net;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Loops;

namespace Quoit.Kestrel.Connections;

/// <summary>An attempt to connect that a loop was asked for.</summary>
internal sealed class PendingConnect
{
    private readonly Loop _loop;
    private readonly TaskCompletionSource<ConnectionContext> _outcome = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private ulong _id;

    private PendingConnect(Loop loop, EndPoint remote, byte[] address, int descriptor)
    {
        _loop = loop;
        RemoteEndPoint = remote;
        Address = address;
        Descriptor = descriptor;
    }

    public EndPoint RemoteEndPoint { get; }

    /// <summary>In the library's form.</summary>
    public byte[] Address { get; }

    /// <summary>A connected socket to take over instead; -1 if there is none.</summary>
    public int Descriptor { get; }

    /// <summary>Connects on that loop. Cancelling gives the attempt up, also one that the kernel has begun.</summary>
    public static async ValueTask<ConnectionContext> StartAsync(
        Loop loop, EndPoint remote, byte[] address, int descriptor, CancellationToken cancellation)
    {
        var pending = new PendingConnect(loop, remote, address, descriptor);
        loop.Schedule(static state => ((PendingConnect)state!).Begin(), pending);
        await using var registration = cancellation.UnsafeRegister(
            static (state, token) => ((PendingConnect)state!).Cancel(token), pending).ConfigureAwait(false);
        return await pending._outcome.Task.ConfigureAwait(false);
    }

    /// <summary>Asks the loop. On its thread, as all that follows.</summary>
    public void Begin() => _loop.Connect(this);

    /// <summary>The library has an id for it.</summary>
    public void OnConnecting(ulong id)
    {
        _id = id;
        if (_outcome.Task.IsCompleted)
        {
            _loop.Abort(id);
        }
    }

    /// <summary>False if nobody wants the connection any more.</summary>
    public bool Succeed(QuoitConnection connection) => _outcome.TrySetResult(connection);

    public void Fail(Exception reason) => _outcome.TrySetException(reason);

    private void Cancel(CancellationToken token)
    {
        if (_outcome.TrySetCanceled(token))
        {
            _loop.Schedule(
                static state =>
                {
                    var pending = (PendingConnect)state!;
                    pending._loop.GiveUp(pending._id);
                },
                this);
        }
    }
}
