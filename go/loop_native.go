//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/native"
)

const (
	// turnEvents is the most that one turn reports. The library's turns handle about 64 completions.
	turnEvents = 1024
	// turnCommands is the most that one turn takes: the leases of all events, and what connections ask for.
	turnCommands = 4 * turnEvents
	// connectionCommands is the most that one connection asks for in a turn.
	connectionCommands = 8
)

// Tokens say what a command was for; connects and timers have theirs above tokenFirst.
const (
	tokenSend = iota + 1
	tokenOther
	tokenFirst
)

// nativeLoop is a loop of libquoit on an operating system's thread of its own.
type nativeLoop struct {
	index   int
	unique  int // number, among those of the process
	group   *Loops
	library *native.Loop
	remote  *native.Remote
	pool    *blocks
	thread  int
	asleep  atomic.Bool // in a turn that waits, or parked: who adds something must wake it. Written under the lock
	away    atomic.Bool // none of the loop's own calls to handlers and functions is under way
	engine  Engine
	reason  string
	gone    chan struct{} // closed when the thread has ended

	mu     sync.Mutex
	listed []*Conn  // those with requests
	posted []func() // to be run
	ended  bool     // takes nothing any more

	// The loop's thread only.
	waiter      waiter
	connections map[native.ID]*Conn
	dialling    map[uint64]*Conn  // by token
	timers      map[uint64]func() // by token
	token       uint64
	room        []native.Command // native memory for commands
	commands    []native.Command // those of the next turn; in room, but for a flood of them
	events      []native.Event
	flights     []*Conn  // sends of the turn under way
	scratch     []*block // read by the turn under way
	local       net.Addr // of the connection that came last, and its text
	localText   string
	spareConns  []*Conn
	running     []func() // taken from posted; those from ran on are still to be run
	ran         int
	pending     []native.Event // of the turn under way, still to be reported
	reporting   bool           // a turn's events and sends are being reported
	blamed      *Conn          // whose handler was called last
	followedUp  int            // flights that were followed up
	over        bool           // live has ended
	yielding    yielding
	readers     int  // that were made ready since the last turn
	woken       bool // other goroutines were
	hurry       bool // the turn must not wait: something follows it
	full        bool // the last turn had no room for more events, so sends are not followed up
	stopping    bool
	why         error // what ends it: it is shut down, or has failed
	sendMemory  sendMemory
	datagrams   datagramTable
}

// useLibrary makes the loops on libquoit: all of one engine.
func (l *Loops) useLibrary() error {
	if err := native.Load(); err != nil {
		return &libraryError{err}
	}
	config, err := l.config.native()
	if err != nil {
		return err
	}
	made, err := l.startNative(config)
	if err == nil || config.Engine != native.EngineAuto || made == 0 || l.engine != EngineURing {
		return err
	}
	// The first loop runs on io_uring, but another cannot: all take epoll.
	reason := fmt.Sprintf("io_uring runs %d of %d loops and no more; %v", made, l.config.loops, err)
	config.Engine = native.EngineEpoll
	if _, err = l.startNative(config); err == nil {
		l.reason = reason
	}
	return err
}

// startNative makes all loops, or none; then it returns how many it could make.
func (l *Loops) startNative(config native.Config) (made int, err error) {
	for index := range l.config.loops {
		loop := newNativeLoop(l, index)
		ready := make(chan error)
		go loop.run(config, ready)
		if err := <-ready; err != nil {
			for _, loop := range l.loops {
				loop.end()
			}
			l.loops = nil
			return index, err
		}
		l.loops = append(l.loops, loop)
		if index == 0 {
			l.engine, l.reason = loop.engine, loop.reason
			config.Engine = native.EngineURing
			if loop.engine == EngineEpoll {
				config.Engine = native.EngineEpoll
			}
		}
	}
	return len(l.loops), nil
}

// native is the configuration for the library.
func (c *config) native() (native.Config, error) {
	config := native.DefaultConfig()
	switch c.engine {
	case EngineURing:
		config.Engine = native.EngineURing
	case EngineEpoll:
		config.Engine = native.EngineEpoll
	}
	if len(c.without) > 0 {
		_, _, features, err := native.Probe(nil)
		if err != nil {
			return config, err
		}
		for _, name := range c.without {
			bit, err := featureBit(features, name)
			if err != nil {
				return config, err
			}
			config.Without |= bit
		}
	}
	if c.kernelPoll >= 0 {
		config.KernelPollNS = c.kernelPoll.Nanoseconds()
	}
	config.Connections = uint32(c.connections)
	config.ReceiveSlots, config.ReceiveSlotSize = uint32(c.receiveSlots), uint32(c.receiveSlotSize)
	for config.BufferRing > config.ReceiveSlots {
		config.BufferRing /= 2
	}
	// Slots are returned in the turn that brings them. The cap bounds what a turn can bring past the inbound limit.
	config.LeasesPerConnection = 16
	config.HighWater, config.LowWater = uint32(c.highWater), uint32(c.lowWaterBelow())
	config.SendChunks = max(config.SendChunks, 2*uint32(c.highWater)/config.SendChunkSize)
	config.CloseDeadlineNS = c.closeLimit.Nanoseconds()
	return config, nil
}

func featureBit(features []native.Capability, name string) (uint64, error) {
	names := make([]string, len(features))
	for index, feature := range features {
		if feature.Name == name {
			return feature.Bit, nil
		}
		names[index] = feature.Name
	}
	return 0, fmt.Errorf("%q is not a feature of io_uring that can be switched off; these are: %v", name, names)
}

func newNativeLoop(group *Loops, index int) *nativeLoop {
	return &nativeLoop{
		index:       index,
		group:       group,
		pool:        newBlocks(mapped{}, group.config.highWater),
		gone:        make(chan struct{}),
		connections: make(map[native.ID]*Conn),
		dialling:    make(map[uint64]*Conn),
		timers:      make(map[uint64]func()),
		token:       tokenFirst,
		why:         ErrShutdown,
	}
}

// mapped is a memorySource outside of Go's heap.
type mapped struct{}

func (mapped) take(size int) ([]byte, error) {
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("quoit: no memory: mapping %d bytes: %w", size, err)
	}
	return memory, nil
}

func (mapped) give(memory []byte) {
	// It was mapped by take, so that unmapping cannot fail.
	_ = syscall.Munmap(memory)
}

func mapSlice[T any](length int) ([]T, error) {
	var element T
	memory, err := mapped{}.take(length * int(unsafe.Sizeof(element)))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), length), nil
}

func unmapSlice[T any](slice []T) {
	if slice == nil {
		return
	}
	var element T
	start := (*byte)(unsafe.Pointer(unsafe.SliceData(slice)))
	mapped{}.give(unsafe.Slice(start, cap(slice)*int(unsafe.Sizeof(element))))
}

// loopNumbers are in the loops' ids.
var loopNumbers numbers

// run is the loop's thread.
func (l *nativeLoop) run(config native.Config, ready chan<- error) {
	// Never unlocked: the thread is the loop's, and ends with it.
	runtime.LockOSThread()
	l.thread = syscall.Gettid()
	number, found := loopNumbers.take(maxLoops)
	if !found {
		ready <- fmt.Errorf("there are %d loops in this process already", maxLoops)
		return
	}
	defer loopNumbers.give(number)
	l.unique = number
	if l.group.config.spareProcessor {
		spareProcessor(number)
	}
	if err := l.make(&config, number); err != nil {
		ready <- err
		return
	}
	ready <- nil
	l.live()
}

// live makes turns until the loop is stopped, and ends it.
//
// A handler that calls runtime.Goexit, as t.FailNow does, ends the goroutine, and nothing can keep it: but its deferred calls
// run first, on the thread that the library's loop belongs to. So the loop goes on within one of them, where it was: whatever
// a turn has taken is taken out of its list before a handler is called for it.
func (l *nativeLoop) live() {
	defer func() {
		if l.over {
			return
		}
		if recovered := recover(); recovered != nil {
			panic(recovered)
		}
		l.exited()
		l.live()
	}()
	for !l.stopping {
		if err := l.turn(); err != nil {
			err = fmt.Errorf("quoit: loop %d has failed: %w", l.index, err)
			l.group.config.logger.Error("quoit: a loop has failed and ends; its connections are lost", "error", err)
			l.group.fail(err)
			l.why = err
			l.stopping = true // also if a handler that is told of the end calls runtime.Goexit
		}
	}
	l.finish()
	l.over = true
	close(l.gone)
}

// exited ends the connection whose handler has called runtime.Goexit.
func (l *nativeLoop) exited() {
	c := l.blamed
	l.blamed = nil
	reportExit(l.group.config, c)
}

// make makes all that the loop needs, or nothing.
func (l *nativeLoop) make(config *native.Config, number int) (err error) {
	parks := shares(number)
	if parks {
		config.Pollable = 1
	}
	if l.library, err = native.NewLoop(config, number); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.free())
		}
	}()
	if l.remote, err = l.library.Remote(); err != nil {
		return err
	}
	if l.waiter, err = newWaiter(l.library, parks); err != nil {
		return err
	}
	if l.room, err = mapSlice[native.Command](turnCommands); err != nil {
		return err
	}
	if l.events, err = mapSlice[native.Event](turnEvents); err != nil {
		return err
	}
	l.commands = l.room[:0]
	l.engine, l.reason = EngineURing, l.library.EngineReason()
	if l.library.Engine() == native.EngineEpoll {
		l.engine = EngineEpoll
	}
	l.sendMemory = newSendMemory(config)
	return nil
}

// free gives back what make has made.
func (l *nativeLoop) free() error {
	err := errors.Join(l.waiter.close(), l.library.Destroy())
	l.mu.Lock()
	if l.remote != nil {
		l.remote.Release()
		l.remote = nil
	}
	l.mu.Unlock()
	l.pool.close()
	unmapSlice(l.room)
	unmapSlice(l.events)
	return err
}

// turn takes in what is asked of the loop, makes one turn of the library's, and reports its events. If a handler has ended the
// last one, it goes on with that.
func (l *nativeLoop) turn() error {
	if !l.reporting {
		if err := l.advanceTurn(); err != nil {
			return err
		}
	}
	l.report()
	return nil
}

// advanceTurn takes in what is asked of the loop, and makes one turn of the library's.
func (l *nativeLoop) advanceTurn() error {
	l.away.Store(true)
	now := time.Now()
	l.waiter.begin(now, l.mustYield(now))
	l.away.Store(false)
	l.readers, l.woken = 0, false
	l.hurry = false
	if l.sendMemory.short {
		l.sendMemory.look(l.remote)
	}
	more := l.gather()
	timeout, filled, err := l.advance(more)
	l.awake()
	l.commands = l.room[:0]
	if err != nil {
		return err
	}
	l.waiter.waited(timeout, filled)
	l.pending, l.reporting = l.events[:filled], true
	// A turn that filled all the room may not have told of everything that it refused.
	l.full = filled == len(l.events)
	return nil
}

// mustYield is whether goroutines that were made ready are to run before the loop waits.
func (l *nativeLoop) mustYield(now time.Time) bool {
	return l.woken || l.readers > 0 && (l.waiter.poller != nil || l.yielding.yields(now, l.readers))
}

// report reports what the turn has brought, and follows up its sends.
func (l *nativeLoop) report() {
	for len(l.pending) > 0 {
		event := &l.pending[0]
		l.pending = l.pending[1:]
		l.dispatch(event)
	}
	l.blamed = nil
	l.deliverDatagrams()
	if !l.full {
		l.followUpSends()
	}
	l.reporting = false
}

// advance waits if nothing is to be done before, and makes the library's turn.
func (l *nativeLoop) advance(more bool) (timeout int64, filled int, err error) {
	l.away.Store(true)
	defer l.away.Store(false)
	if !more && !l.hurry && !l.full && l.sleeps() {
		if timeout, err = l.waiter.wait(len(l.commands) > 0); err != nil {
			return 0, 0, err
		}
	}
	filled, err = l.library.Turn(l.commands, l.events, timeout)
	return timeout, filled, err
}

// gather turns requests into commands; it returns whether some found no room.
func (l *nativeLoop) gather() (more bool) {
	for round := 0; round < 2; round++ {
		ran := l.runPosted()
		l.mu.Lock()
		listed := l.listed
		l.listed = l.spareConns
		l.mu.Unlock()
		for index, c := range listed {
			if len(l.commands)+connectionCommands > turnCommands-turnEvents {
				l.mu.Lock()
				l.listed = append(l.listed, listed[index:]...)
				l.mu.Unlock()
				more = true
				break
			}
			l.ask(c)
		}
		clear(listed)
		l.spareConns = listed[:0]
		if more || !ran {
			return more
		}
		// Functions may have asked for something, which is to leave in this turn.
	}
	return false
}

// runPosted runs what was posted, and returns whether that was anything.
func (l *nativeLoop) runPosted() bool {
	l.mu.Lock()
	l.running = append(l.running, l.posted...)
	clear(l.posted)
	l.posted = l.posted[:0]
	l.mu.Unlock()
	any := len(l.running) > 0
	for l.ran < len(l.running) {
		f := l.running[l.ran]
		l.running[l.ran] = nil
		l.ran++
		f()
	}
	l.running, l.ran = l.running[:0], 0
	return any
}

// sleeps announces that the loop is about to wait; false if there is something to do first.
func (l *nativeLoop) sleeps() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	asleep := !l.stopping && len(l.listed) == 0 && len(l.posted) == 0
	l.asleep.Store(asleep)
	return asleep
}

func (l *nativeLoop) awake() {
	l.mu.Lock()
	l.asleep.Store(false)
	l.mu.Unlock()
}

func (l *nativeLoop) push(command native.Command) { l.commands = append(l.commands, command) }

// ask turns one connection's requests into commands.
func (l *nativeLoop) ask(c *Conn) {
	c.mu.Lock()
	requests := c.requests
	c.requests, c.listed = 0, false
	id := c.id
	if id == 0 {
		// It is not connecting yet, or has closed.
		if !c.gone {
			c.requests = requests
		}
		c.mu.Unlock()
		return
	}
	if requests&requestAbort != 0 {
		l.push(native.Command{Kind: native.CommandAbort, Target: id, Token: tokenOther})
		c.mu.Unlock()
		return
	}
	if requests&requestPause != 0 {
		kind := uint16(native.CommandResume)
		if c.pause {
			kind = native.CommandPause
		}
		l.push(native.Command{Kind: kind, Target: id, Token: tokenOther})
	}
	if requests&requestDeadline != 0 {
		after := int64(-1)
		if !c.deadline.IsZero() {
			after = untilNS(c.deadline)
		}
		l.push(native.Command{Kind: native.CommandSetDeadline, Target: id, Token: tokenOther, TimeNS: after})
	}
	if requests&requestDirect != 0 {
		l.letSendDirectly(c)
	}
	// A send of no more than this is taken after the library has said that it is writable.
	if bytes := c.out.next(l.sendMemory.most(l.group.config.highWater - l.group.config.lowWaterBelow())); bytes != nil {
		l.push(native.Command{
			Kind: native.CommandSend, Target: id, Token: tokenSend,
			Data: unsafe.Pointer(unsafe.SliceData(bytes)), Length: uint32(len(bytes)),
		})
		l.flights = append(l.flights, c)
	}
	l.askFile(c)
	// What waits for the library to take those bytes must not wait for the turn.
	l.hurry = l.hurry || c.out.flying > 0 && (c.out.queued() > c.out.flying || c.out.refused)
	if ends := requests & (requestShutdown | requestClose); ends != 0 {
		if !c.out.empty() {
			// Only when the library has taken all bytes. followUpSends lists the connection again.
			c.requests |= ends
			l.hurry = l.hurry || c.out.flying > 0
			if ends&requestClose != 0 {
				l.limitClose(c)
			}
		} else if ends&requestClose != 0 {
			// As long as the peer takes something.
			l.push(native.Command{Kind: native.CommandClose, Target: id, Token: tokenOther, TimeNS: -1})
		} else {
			l.push(native.Command{Kind: native.CommandShutdown, Target: id, Token: tokenOther})
		}
	}
	c.mu.Unlock()
	if requests&requestKeepRest != 0 {
		c.settle()
	}
}

// limitClose sets the deadline of a connection that is closed before the library has taken all of its bytes, and so
// before its close can limit it. It is called again whenever the library has taken some, and when the peer has by the time
// that it is due. The lock is held.
func (l *nativeLoop) limitClose(c *Conn) {
	c.closeBy = time.Now().Add(l.group.config.closeLimit)
	c.looked = l.library.TakenByPeer(c.id)
	c.deadline = c.closeBy
	l.push(native.Command{
		Kind: native.CommandSetDeadline, Target: c.id, Token: tokenOther, TimeNS: untilNS(c.deadline),
	})
}

// untilNS is how long it is until then, in nanoseconds; 0 if it is over.
func untilNS(t time.Time) int64 { return max(0, time.Until(t).Nanoseconds()) }

// followUpSends follows up the sends of a turn that has told everything.
func (l *nativeLoop) followUpSends() {
	for _, b := range l.scratch {
		l.pool.put(b)
	}
	l.scratch = l.scratch[:0]
	for l.followedUp < len(l.flights) {
		c := l.flights[l.followedUp]
		l.flights[l.followedUp] = nil
		l.followedUp++
		c.mu.Lock()
		if c.out.flying > 0 {
			c.out.taken(l.pool)
		}
		if c.state == stateClosed {
			c.out.drop(l.pool)
		}
		again := !c.out.blocked && (!c.out.empty() || c.requests != 0 || c.files.waits()) && !c.listed && c.id != 0
		if again {
			c.listed = true
		}
		room := c.out.refused && c.state == stateOpen && c.out.queued() <= l.group.config.lowWater
		if room {
			c.out.refused = false
		}
		c.mu.Unlock()
		if again {
			l.serve(c)
		}
		if room {
			l.blamed = c
			c.sink.writable(c)
			l.blamed = nil
		}
	}
	l.flights, l.followedUp = l.flights[:0], 0
}
