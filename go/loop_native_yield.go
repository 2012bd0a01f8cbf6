//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"sync/atomic"
	"time"
)

const (
	// leftToOthers is the most readers that are left to other processors: more are better served in a row, as what they write
	// then leaves in one turn.
	leftToOthers = 8
	// sparseLimit is how far apart turns are that a yield costs next to nothing.
	sparseLimit = time.Millisecond
	// lateLimit is how long other processors may take to run a reader. They take a few microseconds if one of them is idle.
	lateLimit = 200 * time.Microsecond
	// A loop whose readers were late yields for that many turns before it tries again: first for leastPause, and up to mostPause if
	// they are late again and again.
	leastPause = 64
	mostPause  = 4096
)

// yielding decides whether a loop with a processor of its own yields to the readers that it has made ready before it waits.
//
// They are in that processor's queue. If the loop waits at once, another processor that has nothing to do takes them from there, and
// what they write they send by themselves. That spares two changes of thread for each. But if all others are busy, nobody looks
// into the queue until Go's monitor does, which takes from 20 µs to 10 ms. So readers are left to others only as long as it is seen
// that these run them in time.
type yielding struct {
	unserved atomic.Int32 // readers that were made ready and have not run yet

	// The loop's thread only.
	last   time.Time // when readers were made ready last
	served time.Time // when all that were made ready before had run
	prompt int       // times in a row that they had
	rest   int       // turns for which it yields, because they had not
	pause  int       // how many those will be the next time
}

// yields returns whether to yield, after a turn that has made so many readers ready.
func (y *yielding) yields(now time.Time, readers int) bool {
	apart := now.Sub(y.last)
	y.last = now
	if y.rest > 0 {
		y.rest--
		return true
	}
	if apart >= sparseLimit {
		y.served = now
		return true
	}
	unserved := int(y.unserved.Load())
	if unserved <= readers {
		y.served = now
		if y.prompt++; y.prompt >= leastPause {
			y.pause = leastPause
		}
	} else if now.Sub(y.served) >= lateLimit {
		y.prompt = 0
		y.pause = max(y.pause, leastPause)
		y.rest = y.pause
		y.pause = min(2*y.pause, mostPause)
		return true
	}
	return unserved > leftToOthers
}
