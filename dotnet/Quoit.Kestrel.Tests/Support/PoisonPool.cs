using System.Buffers;
using System.Collections.Concurrent;
using Microsoft.AspNetCore.Connections;

namespace Quoit.Kestrel.Tests.Support;

/// <summary>
/// Pools whose blocks are filled with a poison when they are returned. Who reads one after that sends or sees poison;
/// who writes to one is found when it is rented again, or at the end.
/// </summary>
public sealed class PoisonPoolFactory : IMemoryPoolFactory<byte>
{
    /// <summary>Bytes of a block.</summary>
    public const int BlockSize = 4096;

    private const byte Poison = 0xDD;

    private readonly ConcurrentQueue<Block> _free = new();
    private readonly ConcurrentQueue<string> _faults = new();
    private int _rented;
    private bool _isExhausted;
    private int _returnsToFail;

    /// <summary>Whether it has no block for anybody, as a pool with a bound has none at times.</summary>
    public bool IsExhausted
    {
        get => Volatile.Read(ref _isExhausted);
        set => Volatile.Write(ref _isExhausted, value);
    }

    /// <summary>Has the next return of a block fail, for whoever returns it; the block is back all the same.</summary>
    public void FailNextReturn() => Volatile.Write(ref _returnsToFail, 1);

    /// <summary>Whether that is still to come.</summary>
    public bool IsReturnToFail => Volatile.Read(ref _returnsToFail) != 0;

    /// <summary>Blocks that somebody holds.</summary>
    public int Rented => Volatile.Read(ref _rented);

    /// <summary>The most that were held at once, by and large: concurrent rents may hide a few from each other.</summary>
    public int MostRented { get; private set; }

    /// <summary>For whom pools were made, as their metrics say.</summary>
    public ConcurrentQueue<string?> Owners { get; } = new();

    public MemoryPool<byte> Create(MemoryPoolOptions? options = null)
    {
        Owners.Enqueue(options?.Owner);
        return new Pool(this);
    }

    /// <summary>Fails if a block was used after it was returned, or returned twice.</summary>
    public void Verify()
    {
        foreach (var block in _free)
        {
            block.CheckPoison();
        }
        Assert.Empty(_faults);
    }

    private Block Rent()
    {
        if (IsExhausted)
        {
            throw new InsufficientMemoryException("no block is left");
        }
        MostRented = Math.Max(MostRented, Interlocked.Increment(ref _rented));
        // Half of the blocks rest, so that a use after the return is more likely to be found.
        if (_free.Count > 8 && _free.TryDequeue(out var block))
        {
            block.CheckPoison();
            block.Returned = 0;
            return block;
        }
        return new Block(this);
    }

    private sealed class Pool(PoisonPoolFactory owner) : MemoryPool<byte>
    {
        public override int MaxBufferSize => BlockSize;

        public override IMemoryOwner<byte> Rent(int minBufferSize = -1)
        {
            ArgumentOutOfRangeException.ThrowIfGreaterThan(minBufferSize, BlockSize);
            return owner.Rent();
        }

        protected override void Dispose(bool disposing)
        {
        }
    }

    private sealed class Block(PoisonPoolFactory owner) : IMemoryOwner<byte>
    {
        private readonly byte[] _bytes = GC.AllocateUninitializedArray<byte>(BlockSize, pinned: true);

        public int Returned;

        public Memory<byte> Memory => System.Runtime.InteropServices.MemoryMarshal.CreateFromPinnedArray(_bytes, 0, BlockSize);

        public void CheckPoison()
        {
            if (_bytes.AsSpan().ContainsAnyExcept(Poison))
            {
                owner._faults.Enqueue("a block was written to after it had been returned");
            }
        }

        public void Dispose()
        {
            if (Interlocked.Exchange(ref Returned, 1) != 0)
            {
                owner._faults.Enqueue("a block was returned twice");
                return;
            }
            _bytes.AsSpan().Fill(Poison);
            Interlocked.Decrement(ref owner._rented);
            owner._free.Enqueue(this);
            if (Interlocked.Exchange(ref owner._returnsToFail, 0) != 0)
            {
                throw new InvalidOperationException("a block cannot be returned");
            }
        }
    }
}
