namespace Quoit.Kestrel.Connections;

/// <summary>
/// Decides when so many connections wait to be taken that the loops accept no more, and when they go on. Whoever offers or
/// takes one asks for that without a lock, and only where something may be due for a <see cref="Change"/>.
/// </summary>
internal sealed class AcceptBrake(int most, int least, Func<int> waiting)
{
    private volatile bool _held;

    /// <summary>Whether the loops accept no more.</summary>
    public bool IsHeld => _held;

    /// <summary>Whether a <see cref="Change"/> may be due. Behind each connection that was offered.</summary>
    public bool IsDueAfterOffer() => !_held && waiting() >= most;

    /// <summary>Whether a <see cref="Change"/> may be due. Behind each connection that was taken.</summary>
    public bool IsDueAfterTake()
    {
        // Who holds says so and then counts again; this is the other order, so that one of the two sees the other.
        Interlocked.MemoryBarrier();
        return _held;
    }

    /// <summary>Holds if many wait, or lets go if few do; returns whether it is another than before. One caller at a time.</summary>
    public bool Change()
    {
        if (_held)
        {
            // That many came since the count is found by the next that is offered, if one is.
            _held = waiting() > least;
            return !_held;
        }
        if (waiting() < most)
        {
            return false;
        }
        _held = true;
        // Whoever took them since the count did not see that it is held, and may have taken all: nobody else would let go.
        Interlocked.MemoryBarrier();
        _held = waiting() > least;
        return _held;
    }
}
