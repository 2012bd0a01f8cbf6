using System.Net;
using System.Runtime.InteropServices;
using Microsoft.AspNetCore.Connections;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Loops;

// Binding, and who accepts for which listener.
internal sealed partial class LoopGroup
{
    /// <summary>Binds and begins to accept.</summary>
    /// <exception cref="AddressInUseException">Somebody has the address.</exception>
    public async Task<QuoitConnectionListener> ListenAsync(EndPoint endPoint, CancellationToken cancellation)
    {
        var accepting = Options.AcceptMode == QuoitAcceptMode.HandOver ? _loops[..1] : _loops;
        var ownSockets = Options.AcceptMode == QuoitAcceptMode.UnsafeReusePort && endPoint is IPEndPoint;
        var sockets = new List<nint>();
        QuoitConnectionListener? listener = null;
        var starting = Task.CompletedTask;
        try
        {
            sockets.Add(OpenSocket(endPoint, ownSockets));
            var bound = BoundEndPoint(sockets[0], endPoint);
            while (sockets.Count < accepting.Count)
            {
                sockets.Add(ownSockets ? OpenSocket(bound, reusePort: true) : CloneSocket(sockets[0]));
            }
            listener = new QuoitConnectionListener(this, bound);
            foreach (var loop in accepting)
            {
                // The library's from here on, also if it fails.
                var socket = sockets[0];
                sockets.RemoveAt(0);
                starting = StartListeningAsync(loop, socket, listener);
                await starting.WaitAsync(cancellation).ConfigureAwait(false);
            }
            Log.Listening(bound, Engine);
            return listener;
        }
        catch
        {
            foreach (var socket in sockets)
            {
                NativeMethods.SocketClose(socket);
            }
            if (listener is not null)
            {
                // Also of what nobody waits for any more the listener must know, to stop it.
                await starting.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
                await listener.DisposeAsync().ConfigureAwait(false);
            }
            throw;
        }
    }

    private unsafe nint OpenSocket(EndPoint endPoint, bool reusePort)
    {
        nint socket;
        int code;
        if (endPoint is FileHandleEndPoint handle)
        {
            var descriptor = checked((int)handle.FileHandle);
            Kernel.Listen(descriptor, Options.Backlog);
            // As in the transport of sockets, the handle stays its owner's, who may close it, or bind it again.
            code = NativeMethods.SocketAdopt(Kernel.DuplicateDescriptor(descriptor), &socket);
        }
        else
        {
            var options = new NativeBindOptions { Size = (uint)sizeof(NativeBindOptions), Backlog = (uint)Options.Backlog };
            if (reusePort)
            {
                options.Flags |= BindFlags.ReusePort;
            }
            // As in the transport of sockets, only the address of all interfaces takes both families.
            if (endPoint is IPEndPoint ip && ip.AddressFamily == System.Net.Sockets.AddressFamily.InterNetworkV6
                && !ip.Address.Equals(IPAddress.IPv6Any))
            {
                options.Flags |= BindFlags.Ipv6Only;
            }
            var text = Kernel.AddressText(endPoint);
            fixed (byte* address = text)
            {
                code = NativeMethods.SocketBind(address, (nuint)text.Length, &options, &socket);
            }
        }
        if (code < 0)
        {
            var failure = Errno.ToException(code, NativeText.LastError());
            throw code == Errno.AddressInUse ? new AddressInUseException(failure.Message, failure) : failure;
        }
        return socket;
    }

    private static unsafe nint CloneSocket(nint socket)
    {
        nint clone;
        var code = NativeMethods.SocketClone(socket, &clone);
        return code >= 0 ? clone : throw Errno.ToException(code, NativeText.LastError());
    }

    /// <summary>The endpoint with its port; that of a handle's socket.</summary>
    private static EndPoint BoundEndPoint(nint socket, EndPoint asked) => asked switch
    {
        IPEndPoint { Port: not 0 } => asked,
        System.Net.Sockets.UnixDomainSocketEndPoint => asked,
        _ => Kernel.LocalEndPoint(NativeMethods.SocketFd(socket))
            ?? throw new InvalidOperationException("The socket that was just bound has no address."),
    };

    private Task StartListeningAsync(Loop loop, nint socket, QuoitConnectionListener listener)
    {
        var started = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        void Start(object? state)
        {
            try
            {
                if (loop.HasEnded)
                {
                    NativeMethods.SocketClose(socket);
                    throw new ObjectDisposedException(nameof(QuoitTransportFactory));
                }
                var id = Options.AcceptMode == QuoitAcceptMode.HandOver ? ListenForAll(loop, socket) : loop.Listen(socket, []);
                // It accepts from the next turn on, so that no connection comes before this.
                _listeners[id] = listener;
                listener.Add(loop, id);
                started.SetResult();
            }
            catch (Exception failure)
            {
                // Not if it has started, and no thread was left to run who waits for it.
                started.TrySetException(failure);
            }
        }
        if (!loop.TryPost(Start, null))
        {
            NativeMethods.SocketClose(socket);
            started.SetException(new ObjectDisposedException(nameof(QuoitTransportFactory)));
        }
        return started.Task;
    }

    /// <summary>Has one loop accept for all that run.</summary>
    private ulong ListenForAll(Loop accepting, nint socket)
    {
        var used = new List<Loop>(_loops.Count);
        var remotes = new List<nint>(_loops.Count);
        try
        {
            foreach (var loop in _loops)
            {
                if (loop.TryUseRemote(out var remote))
                {
                    used.Add(loop);
                    remotes.Add(remote);
                }
            }
            return accepting.Listen(socket, CollectionsMarshal.AsSpan(remotes));
        }
        finally
        {
            used.ForEach(static loop => loop.LeaveRemote());
        }
    }

    public QuoitConnectionListener? FindListener(ulong id) => _listeners.GetValueOrDefault(id);

    /// <summary>A listener of a loop is gone; connections that it handed to other loops may still arrive.</summary>
    public void ListenerClosed(ulong id, int error)
    {
        if (FindListener(id) is not { } listener)
        {
            return;
        }
        Exception? failure = null;
        if (error != 0)
        {
            failure = Errno.ToException(error, $"Accepting on {listener.EndPoint} has failed: error {-error}.");
            Log.AcceptingFailed(listener.EndPoint, failure.Message);
        }
        listener.PartClosed(id, failure);
    }

    public void Forget(QuoitConnectionListener listener)
    {
        foreach (var (id, known) in _listeners)
        {
            if (known == listener)
            {
                _listeners.TryRemove(id, out _);
            }
        }
    }
}
