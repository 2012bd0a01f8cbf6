//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"testing"
	"time"
)

// turns has a loop make turns at a distance, each of which makes one reader ready that runs at once, or never does, and returns in
// how many of them it yields.
func (y *yielding) turns(now *time.Time, count int, apart time.Duration, served bool) (yields int) {
	for range count {
		*now = now.Add(apart)
		y.unserved.Add(1)
		if y.yields(*now, 1) {
			yields++
			y.unserved.Store(0) // who is yielded to runs
		} else if served {
			y.unserved.Add(-1)
		}
	}
	return yields
}

func TestReadersAreLeftToProcessorsThatRunThemInTime(t *testing.T) {
	var y yielding
	now := time.Now()
	// The first is far apart from none.
	if yields := y.turns(&now, 1000, 100*time.Microsecond, true); yields != 1 {
		t.Errorf("it yielded %d times to readers that others ran", yields)
	}
}

func TestALoopWithFewEventsYields(t *testing.T) {
	var y yielding
	now := time.Now()
	if yields := y.turns(&now, 100, sparseLimit, true); yields != 100 {
		t.Errorf("it yielded %d times of 100", yields)
	}
}

func TestALoopYieldsWhereReadersAreLateAndTriesAgainEverMoreSeldom(t *testing.T) {
	var y yielding
	now := time.Now()
	y.turns(&now, 100, 10*time.Microsecond, true)
	waits := func(turns int) int { return turns - y.turns(&now, turns, 150*time.Microsecond, false) }
	// Two turns pass until the first reader is seen to be late.
	if late := waits(2 + leastPause + 1); late < 1 || late > 2 {
		t.Errorf("it waited %d times for readers that did not run", late)
	}
	if late := waits(100_000); late > 200 {
		t.Errorf("it waited %d times in 100,000 turns", late)
	}
	y.turns(&now, 3*mostPause, 10*time.Microsecond, true)
	if y.pause != leastPause || y.rest != 0 {
		t.Errorf("it still pauses for %d and %d turns, though others run its readers", y.rest, y.pause)
	}
}

func TestALoopYieldsToManyReaders(t *testing.T) {
	var y yielding
	now := time.Now()
	y.turns(&now, 100, 10*time.Microsecond, true)
	for _, readers := range []int{1, leftToOthers, leftToOthers + 1} {
		now = now.Add(10 * time.Microsecond)
		y.unserved.Store(int32(readers))
		if yields := y.yields(now, readers); yields != (readers > leftToOthers) {
			t.Errorf("to %d: %t", readers, yields)
		}
	}
}
