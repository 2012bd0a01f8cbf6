//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/quoit-io/quoit/go/internal/native"
)

// A loop that waits in a turn keeps one of Go's processors until the runtime takes it back, which lasts up to 10 ms:
// meanwhile nothing else runs on it, and nobody looks whether timers are due or descriptors ready. A loop that waits in
// Go's poller gives the processor away. But its thread is locked, so that each such wait costs two changes of thread and
// the calls to bring them about: several microseconds, more than a small request costs.
//
// So a loop that must share its processor does both. Where events come densely it waits in its turns, and yields every
// holdLimit; elsewhere it waits in Go's poller. Other loops wait in their turns only.
const (
	// denseLimit is how long a wait may last whose next is in a turn.
	denseLimit = time.Millisecond
	// holdLimit is for how long a loop keeps a processor that it shares.
	holdLimit = 2 * time.Millisecond
	// ownLimit is for how long a loop keeps one that it does not share. Go's monitor looks up to every 20 µs for calls
	// that keep a processor, which costs a tenth of a core, until it has found none for a while. As long as another
	// processor is idle it takes none away that was yielded in the last 10 ms.
	ownLimit = 5 * time.Millisecond
)

// shares returns whether the loop of that number shares its processor. Over all loops of the process, whose numbers
// are the smallest that are free, one processor stays for goroutines, timers and other descriptors.
func shares(number int) bool { return number >= runtime.GOMAXPROCS(0)-1 }

// raising is held while GOMAXPROCS is raised.
var raising sync.Mutex

// spareProcessor raises GOMAXPROCS to where the loop of that number does not share its processor.
func spareProcessor(number int) {
	raising.Lock()
	defer raising.Unlock()
	if shares(number) {
		runtime.GOMAXPROCS(number + 2)
	}
}

// waiter decides how a loop waits, and when it yields.
type waiter struct {
	poller *poller   // nil if the loop does not share its processor
	now    time.Time // when the turn began
	given  time.Time // when the processor was last given to others
	dense  bool      // waits in turns, though it shares
}

// newWaiter makes the waiter of a loop, which parks in Go's poller if it was made for that.
func newWaiter(library *native.Loop, parks bool) (waiter, error) {
	if !parks {
		return waiter{}, nil
	}
	poller, err := newPoller(library)
	return waiter{poller: poller}, err
}

// begin begins a turn: it yields if the loop has kept the processor for long, or if it must. Goroutines that it has made ready run
// then before it waits, also where there is no other processor for them, and what they ask for leaves in one turn.
func (w *waiter) begin(now time.Time, must bool) {
	limit := ownLimit
	if w.poller != nil {
		limit = holdLimit
	}
	w.now = now
	if must || w.now.Sub(w.given) >= limit {
		runtime.Gosched()
		w.now = time.Now()
		w.given = w.now
	}
}

// wait returns for how long the turn may wait, in nanoseconds; negative for no end. If it is not to wait, then because
// wait has, or because there are commands that are to be given to the library first.
func (w *waiter) wait(commands bool) (int64, error) {
	switch {
	case w.poller == nil:
		return -1, nil
	case w.dense:
		return denseLimit.Nanoseconds(), nil
	case commands:
		return 0, nil
	}
	err := w.poller.wait()
	w.given = time.Now()
	w.dense = w.given.Sub(w.now) < denseLimit
	return 0, err
}

// waited notes that a turn has waited.
func (w *waiter) waited(timeout int64, filled int) {
	if timeout > 0 && filled == 0 {
		w.dense = false
	}
}

// close gives back what it holds.
func (w *waiter) close() error {
	if w.poller == nil {
		return nil
	}
	return w.poller.file.Close()
}

// poller waits for a parked loop.
type poller struct {
	library *native.Loop
	file    *os.File
	raw     syscall.RawConn
	look    func(descriptor uintptr) bool // p.ready, made once
	waited  bool
	limited bool // a deadline is set
}

func newPoller(library *native.Loop) (*poller, error) {
	descriptor, err := library.Descriptor()
	if err != nil {
		return nil, err
	}
	// The file closes what it is given, and the descriptor is the library's.
	own, err := fcntl(descriptor, syscall.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := syscall.SetNonblock(own, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(own), "quoit")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &poller{library: library, file: file, raw: raw}
	p.look = p.ready
	return p, nil
}

func fcntl(descriptor, command, argument int) (int, error) {
	result, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(descriptor), uintptr(command), uintptr(argument))
	if errno != 0 {
		return -1, errno
	}
	return int(result), nil
}

// wait parks the loop until the descriptor may be readable, its next timer is due, or it has something to do.
func (p *poller) wait() error {
	if p.limited {
		// One that has passed would end the next wait before it begins.
		p.limited = false
		if err := p.file.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	p.waited = false
	err := p.raw.Read(p.look)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// ready parks the loop when it is first called in a wait, and returns whether the wait is over.
func (p *poller) ready(descriptor uintptr) bool {
	if p.waited {
		return true
	}
	p.waited = true
	// Go's poller is edge-triggered, and an edge counts only from here on, so the loop is parked here and not before.
	limit := p.library.Park(int(descriptor))
	if limit <= 0 {
		return true // something is to be done first; or it fails, as the next turn will
	}
	if limit == math.MaxInt64 {
		return false
	}
	p.limited = true
	return p.file.SetReadDeadline(time.Now().Add(time.Duration(limit))) != nil
}
