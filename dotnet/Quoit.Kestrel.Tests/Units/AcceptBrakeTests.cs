using Quoit.Kestrel.Connections;

namespace Quoit.Kestrel.Tests.Units;

/// <summary>When a listener accepts no more, and when it goes on, whatever comes between the steps of deciding it.</summary>
public class AcceptBrakeTests
{
    private const int Most = 8;
    private const int Least = 4;

    /// <summary>A listener with nothing but the count of its connections that wait.</summary>
    private sealed class Listener
    {
        private readonly AcceptBrake _brake;
        private Action? _meanwhile;
        private int _countsBefore;
        private int _changing;

        public Listener(int waiting)
        {
            _brake = new AcceptBrake(Most, Least, Count);
            for (; waiting > 0; waiting--)
            {
                Offer();
            }
        }

        public bool IsHeld => _brake.IsHeld;

        public int Waiting { get; private set; }

        public void Offer()
        {
            Waiting++;
            if (_brake.IsDueAfterOffer())
            {
                Change();
            }
        }

        public void Take(int count)
        {
            for (; count > 0; count--)
            {
                Waiting--;
                if (_brake.IsDueAfterTake())
                {
                    Change();
                }
            }
        }

        /// <summary>Has another thread do this behind the next but so many counts, before who counted goes on; at last when
        /// <see cref="Settle"/> is called.</summary>
        public void Meanwhile(int countsBefore, Action action) => (_countsBefore, _meanwhile) = (countsBefore, action);

        public void Settle()
        {
            _countsBefore = 0;
            Count();
        }

        private int Count()
        {
            var count = Waiting;
            if (_meanwhile is { } action && _countsBefore-- == 0)
            {
                _meanwhile = null;
                action();
            }
            return count;
        }

        /// <summary>One thread at a time: that which comes meanwhile has its turn behind the other.</summary>
        private void Change()
        {
            for (var first = _changing++ == 0; first && _changing > 0; _changing--)
            {
                _brake.Change();
            }
        }
    }

    public static TheoryData<int> Counts => [0, 1, 2, 3];

    [Fact]
    public void It_holds_at_the_most_and_lets_go_at_the_least()
    {
        var listener = new Listener(Most - 1);
        Assert.False(listener.IsHeld);
        listener.Offer();
        Assert.True(listener.IsHeld);
        listener.Take(Most - Least - 1);
        Assert.True(listener.IsHeld);
        listener.Take(1);
        Assert.False(listener.IsHeld);
    }

    /// <summary>Otherwise nobody would ever let go: nothing more is accepted, and so nothing taken.</summary>
    [Theory]
    [MemberData(nameof(Counts))]
    public void It_does_not_stay_held_over_few_that_wait_whenever_the_others_are_taken(int countsBefore)
    {
        for (var taken = 1; taken <= Most; taken++)
        {
            var listener = new Listener(Most - 1);
            listener.Meanwhile(countsBefore, () => listener.Take(taken));
            listener.Offer();
            listener.Settle();
            Assert.Equal(Most - taken, listener.Waiting);
            Assert.False(listener.IsHeld && listener.Waiting <= Least, $"it holds over {listener.Waiting}");
        }
    }

    /// <summary>The next that is offered at the latest has it held again.</summary>
    [Theory]
    [MemberData(nameof(Counts))]
    public void It_holds_again_whenever_many_come_while_it_lets_go(int countsBefore)
    {
        for (var offered = 1; offered <= Most; offered++)
        {
            var listener = new Listener(Most);
            listener.Take(Most - Least - 1);
            Assert.True(listener.IsHeld);
            listener.Meanwhile(countsBefore, () =>
            {
                for (var count = offered; count > 0; count--)
                {
                    listener.Offer();
                }
            });
            listener.Take(1);
            listener.Settle();
            listener.Offer();
            Assert.Equal(Least + offered + 1, listener.Waiting);
            Assert.True(listener.IsHeld || listener.Waiting < Most, $"it does not hold over {listener.Waiting}");
        }
    }
}
