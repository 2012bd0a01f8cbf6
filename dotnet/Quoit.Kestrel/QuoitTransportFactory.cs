using System.Buffers;
using System.Diagnostics.CodeAnalysis;
using System.Diagnostics.Metrics;
using System.Net;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;
using Quoit.Kestrel.Connections;
using Quoit.Kestrel.Loops;
using Quoit.Kestrel.Native;
using Quoit.Kestrel.Observability;

namespace Quoit.Kestrel;

/// <summary>
/// Listens and connects on Quoit's loops: IP endpoints, Unix domain sockets and file handles. Works in Kestrel, by
/// <c>UseQuoit()</c>, and without it. The loops are made with the first endpoint and end with this factory.
/// </summary>
public sealed partial class QuoitTransportFactory :
    IConnectionListenerFactory, IConnectionListenerFactorySelector, IConnectionFactory, IAsyncDisposable, IDisposable
{
    private readonly QuoitTransportOptions _options;
    private readonly QuoitLog _log;
    private readonly IMemoryPoolFactory<byte>? _pools;
    private readonly IMeterFactory? _meters;
    private readonly Lock _gate = new();
    private LoopGroup? _group;
    private QuoitMeter? _meter;
    private QuoitUnavailableException? _unavailable;
    private Task? _ending;

    /// <summary>A factory with those options.</summary>
    /// <param name="options">Checked here: an option out of range is an <see cref="OptionsValidationException"/> that
    /// names it and its range.</param>
    /// <param name="loggerFactory">Where it reports, in the category <c>Quoit.Kestrel</c>; null for nowhere.</param>
    /// <param name="pools">Makes the pools whose blocks hold what is received and sent; null for
    /// <see cref="MemoryPool{T}.Shared"/>.</param>
    /// <param name="meters">Makes the meter <c>Quoit.Transport</c>; null for one of the process.</param>
    public QuoitTransportFactory(
        IOptions<QuoitTransportOptions> options,
        ILoggerFactory? loggerFactory = null,
        IMemoryPoolFactory<byte>? pools = null,
        IMeterFactory? meters = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        _options = options.Value;
        var faults = _options.Faults().ToList();
        if (faults.Count > 0)
        {
            throw new OptionsValidationException(Options.DefaultName, typeof(QuoitTransportOptions), faults);
        }
        _log = new QuoitLog((ILogger?)loggerFactory?.CreateLogger(QuoitLog.Category) ?? Microsoft.Extensions.Logging.Abstractions.NullLogger.Instance);
        _pools = pools;
        _meters = meters;
    }

    /// <summary>Whether an endpoint must not be left to another transport.</summary>
    private bool IsRequired => _options.Require || _options.Engine != QuoitEngine.Auto;

    /// <summary>The loops, if they have been made.</summary>
    internal LoopGroup? Group => _group;

    /// <summary>Why endpoints are left to the transport of sockets; null if they are not.</summary>
    internal Exception? Unavailable => _unavailable;

    /// <summary>Whether Quoit binds that endpoint. Where it cannot run and is not required, the log says so, once, and
    /// the transport of sockets binds it.</summary>
    /// <param name="endpoint">The endpoint.</param>
    /// <returns>False for kinds that it does not know, and where it cannot run.</returns>
    public bool CanBind(EndPoint endpoint) =>
        endpoint is IPEndPoint or UnixDomainSocketEndPoint or FileHandleEndPoint && (TryStart(out _) || IsRequired);

    /// <summary>Binds an endpoint and begins to accept.</summary>
    /// <param name="endpoint">IP, with port 0 for one that the kernel chooses; Unix domain; or the handle of a bound
    /// stream socket, which stays its owner's, and listens on when this has ended.</param>
    /// <param name="cancellationToken">Gives up waiting.</param>
    /// <returns>The listener.</returns>
    /// <exception cref="AddressInUseException">Somebody has the address.</exception>
    /// <exception cref="SocketException">The kernel refuses it for another reason.</exception>
    /// <exception cref="QuoitUnavailableException">Quoit cannot run here.</exception>
    public async ValueTask<IConnectionListener> BindAsync(EndPoint endpoint, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(endpoint);
        return await Start().ListenAsync(endpoint, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Connects to an endpoint. Where Quoit cannot run and is not required, by the transport of sockets.</summary>
    /// <param name="endpoint">IP; Unix domain; a host's name, whose addresses are tried in turn; or the handle of a
    /// connected stream socket, which the factory owns from here on.</param>
    /// <param name="cancellationToken">Gives the attempt up.</param>
    /// <returns>The connection, for the caller to dispose.</returns>
    /// <exception cref="SocketException">The attempt failed.</exception>
    /// <exception cref="QuoitUnavailableException">Quoit cannot run here, and is required.</exception>
    public async ValueTask<ConnectionContext> ConnectAsync(EndPoint endpoint, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(endpoint);
        var descriptor = endpoint is FileHandleEndPoint handle ? checked((int)handle.FileHandle) : -1;
        LoopGroup? group;
        try
        {
            cancellationToken.ThrowIfCancellationRequested();
            group = TryStart(out var started) ? started : IsRequired ? Start() : null;
        }
        catch
        {
            if (descriptor >= 0)
            {
                Kernel.CloseDescriptor(descriptor);
            }
            throw;
        }
        if (group is null)
        {
            return await ConnectSocketAsync(endpoint, cancellationToken).ConfigureAwait(false);
        }
        if (endpoint is not DnsEndPoint name)
        {
            return descriptor >= 0
                ? await PendingConnect.StartAsync(group.NextLoop(), endpoint, [], descriptor, cancellationToken).ConfigureAwait(false)
                : await group.ConnectAsync(endpoint, cancellationToken).ConfigureAwait(false);
        }
        var addresses = await Dns.GetHostAddressesAsync(name.Host, name.AddressFamily, cancellationToken).ConfigureAwait(false);
        SocketException? last = null;
        foreach (var address in addresses)
        {
            try
            {
                return await group.ConnectAsync(new IPEndPoint(address, name.Port), cancellationToken).ConfigureAwait(false);
            }
            catch (SocketException failure)
            {
                last = failure;
            }
        }
        throw last ?? new SocketException((int)SocketError.HostNotFound);
    }

    [SuppressMessage("Reliability", "CA2000", Justification = "The context owns the socket.")]
    private async ValueTask<ConnectionContext> ConnectSocketAsync(EndPoint endpoint, CancellationToken cancellation)
    {
        if (endpoint is FileHandleEndPoint handle)
        {
            return CreateSocketContext(new Socket(new SafeSocketHandle((nint)handle.FileHandle, ownsHandle: true)));
        }
        var socket = endpoint is UnixDomainSocketEndPoint
            ? new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified)
            : new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = _options.NoDelay };
        try
        {
            await socket.ConnectAsync(endpoint, cancellation).ConfigureAwait(false);
            return CreateSocketContext(socket);
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }

    private SocketConnectionContextFactory? _socketContexts;

    private ConnectionContext CreateSocketContext(Socket socket)
    {
        lock (_gate)
        {
            _socketContexts ??= new SocketConnectionContextFactory(
                new SocketConnectionFactoryOptions(), Microsoft.Extensions.Logging.Abstractions.NullLogger.Instance);
        }
        return _socketContexts.Create(socket);
    }

    /// <summary>The loops; made now if they were not.</summary>
    private LoopGroup Start() => TryStart(out var group)
        ? group
        : throw new QuoitUnavailableException(_unavailable!.Message, _unavailable);

    private bool TryStart([NotNullWhen(true)] out LoopGroup? group)
    {
        lock (_gate)
        {
            ObjectDisposedException.ThrowIf(_ending is not null, this);
            if (_group is null && _unavailable is null)
            {
                try
                {
                    _group = LoopGroup.Start(_options, CreatePool, _log);
                    _log.Started(_group.Loops.Count, _group.Engine, _group.EngineReason);
                    _meter = new QuoitMeter(_meters, _group);
                }
                catch (QuoitUnavailableException missing)
                {
                    _unavailable = missing;
                    if (!IsRequired)
                    {
                        _log.LeftToSockets(missing.Message);
                    }
                }
            }
            group = _group;
            return group is not null;
        }
    }

    /// <summary>A pool whose figures name the same owner as those of Kestrel's own transport.</summary>
    private MemoryPool<byte> CreatePool() => _pools?.Create(new MemoryPoolOptions { Owner = "kestrel" }) ?? MemoryPool<byte>.Shared;

    /// <summary>Aborts what is left and ends the loops.</summary>
    /// <returns>When they have ended, also for who calls it while another waits for that.</returns>
    public async ValueTask DisposeAsync()
    {
        var ended = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        Task ending;
        lock (_gate)
        {
            ending = _ending ??= ended.Task;
        }
        if (ending == ended.Task)
        {
            try
            {
                _meter?.Dispose();
                _socketContexts?.Dispose();
                if (_group is { } group)
                {
                    await group.DisposeAsync().ConfigureAwait(false);
                }
                ended.SetResult();
            }
            catch (Exception failure)
            {
                ended.SetException(failure);
            }
        }
        await ending.ConfigureAwait(false);
    }

    /// <summary>The same, and waits for it.</summary>
    public void Dispose() => Task.Run(() => DisposeAsync().AsTask()).GetAwaiter().GetResult();
}
