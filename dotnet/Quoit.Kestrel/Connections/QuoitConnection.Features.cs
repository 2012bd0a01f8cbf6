using System.Buffers;
using System.Collections;
using System.Diagnostics.CodeAnalysis;
using System.Net.Sockets;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Connections.Features;
using Microsoft.AspNetCore.Http.Features;
using Quoit.Kestrel.Native;

namespace Quoit.Kestrel.Connections;

// What others ask of the connection by type. Its own features are the connection itself, without a collection for
// each, until somebody sets one.
internal sealed partial class QuoitConnection :
    IFeatureCollection,
    IConnectionIdFeature,
    IConnectionTransportFeature,
    IConnectionItemsFeature,
    IMemoryPoolFeature,
    IConnectionLifetimeFeature,
    IConnectionEndPointFeature,
    IConnectionSocketFeature
{
    private static readonly Type[] s_own =
    [
        typeof(IConnectionIdFeature), typeof(IConnectionTransportFeature), typeof(IConnectionItemsFeature),
        typeof(IMemoryPoolFeature), typeof(IConnectionLifetimeFeature), typeof(IConnectionEndPointFeature),
        typeof(IConnectionSocketFeature),
    ];

    private Dictionary<Type, object?>? _set;
    private IDictionary<object, object?>? _items;
    private Socket? _socket;
    private int _revision;

    public override IFeatureCollection Features => this;

    public override IDictionary<object, object?> Items
    {
        get => _items ??= new ConnectionItems();
        set => _items = value;
    }

    public MemoryPool<byte> MemoryPool => _loop.Pool;

    /// <summary>
    /// The socket, for its options and names; do not send, receive or close by it. It has a descriptor of its own, made
    /// when it is first asked for, and lives as long as this context.
    /// </summary>
    public Socket Socket
    {
        get
        {
            if (Volatile.Read(ref _socket) is { } known)
            {
                return known;
            }
            ObjectDisposedException.ThrowIf(Volatile.Read(ref _disposed), typeof(ConnectionContext));
            // Without a lock: another thread would wait with it for the loop, which may ask here, too.
            var made = new Socket(new SafeSocketHandle(DuplicateDescriptor(), ownsHandle: true));
            if (Interlocked.CompareExchange(ref _socket, made, null) is { } first)
            {
                made.Dispose();
                return first;
            }
            if (Volatile.Read(ref _disposed))
            {
                // The disposal may have looked before.
                made.Dispose();
            }
            return made;
        }
    }

    private int DuplicateDescriptor()
    {
        // Only the loop's thread knows that the descriptor is still this connection's.
        if (_loop.OnThread)
        {
            return DuplicateOnLoop();
        }
        var answer = new TaskCompletionSource<int>(TaskCreationOptions.RunContinuationsAsynchronously);
        _loop.ScheduleAwaited(
            static state =>
            {
                var (connection, answer) = ((QuoitConnection, TaskCompletionSource<int>))state!;
                try
                {
                    answer.SetResult(connection.DuplicateOnLoop());
                }
                catch (SocketException failure)
                {
                    answer.SetException(failure);
                }
            },
            (this, answer));
        return answer.Task.GetAwaiter().GetResult();
    }

    private int DuplicateOnLoop()
    {
        var descriptor = _gone ? -1 : _loop.Descriptor(_id);
        return descriptor >= 0
            ? Kernel.DuplicateDescriptor(descriptor)
            : throw Errno.ToException(-107, "The connection has closed; its socket can be had while it is open.");
    }

    bool IFeatureCollection.IsReadOnly => false;

    int IFeatureCollection.Revision => _revision;

    object? IFeatureCollection.this[Type key]
    {
        get => Find(key);
        set => Set(key, value);
    }

    TFeature? IFeatureCollection.Get<TFeature>()
        where TFeature : default => (TFeature?)Find(typeof(TFeature));

    void IFeatureCollection.Set<TFeature>(TFeature? instance)
        where TFeature : default => Set(typeof(TFeature), instance);

    private object? Find(Type key)
    {
        if (_set is not null && _set.TryGetValue(key, out var feature))
        {
            return feature;
        }
        return Array.IndexOf(s_own, key) >= 0 ? this : null;
    }

    private void Set(Type key, object? feature)
    {
        _revision++;
        (_set ??= [])[key] = feature;
    }

    IEnumerator<KeyValuePair<Type, object>> IEnumerable<KeyValuePair<Type, object>>.GetEnumerator()
    {
        foreach (var key in s_own)
        {
            if (_set is null || !_set.ContainsKey(key))
            {
                yield return new KeyValuePair<Type, object>(key, this);
            }
        }
        foreach (var (key, feature) in _set ?? [])
        {
            if (feature is not null)
            {
                yield return new KeyValuePair<Type, object>(key, feature);
            }
        }
    }

    [SuppressMessage("Design", "CA1010", Justification = "The collection is of features, as the interface has it.")]
    IEnumerator IEnumerable.GetEnumerator() => ((IEnumerable<KeyValuePair<Type, object>>)this).GetEnumerator();
}
