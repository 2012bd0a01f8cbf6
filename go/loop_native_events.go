//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/native"
)

// dispatch reports one event.
func (l *nativeLoop) dispatch(event *native.Event) {
	switch event.Kind {
	case native.EventData:
		// It goes back with the next turn.
		l.push(native.Command{Kind: native.CommandReturnLease, Lease: event.Lease, Token: tokenOther})
		if c := l.connections[event.Connection]; c != nil {
			l.blamed = c
			c.sink.data(c, unsafe.Slice((*byte)(event.Data), event.Length))
		}
	case native.EventAccepted:
		l.accepted(event.Listener, event.Connection)
	case native.EventConnecting:
		l.connecting(event.Token, event.Connection)
	case native.EventOpened:
		if c := l.connections[event.Connection]; c != nil {
			delete(l.dialling, event.Token)
			c.local, c.remote = l.addresses(event.Connection)
			l.blamed = c
			c.sink.opened(c)
		}
	case native.EventEndOfStream:
		if c := l.connections[event.Connection]; c != nil && !c.IsClosed() {
			l.blamed = c
			c.sink.ended(c)
		}
	case native.EventWritable:
		if c := l.connections[event.Connection]; c != nil {
			c.mu.Lock()
			c.out.blocked = false
			c.ask(requestFlush)
		}
	case native.EventSent:
		if c := l.connections[event.Connection]; c != nil {
			l.fileSent(c, event.Token)
		}
	case native.EventSendFailed:
		if c := l.connections[event.Connection]; c != nil {
			l.sendsNoMore(c, syscall.Errno(-event.Error))
		}
	case native.EventFileShort:
		if c := l.connections[event.Connection]; c != nil {
			l.fileShort(c, event.Token, int64(event.Length), syscall.Errno(-event.Error))
		}
	case native.EventDeadline:
		if c := l.connections[event.Connection]; c != nil {
			l.deadline(c)
		}
	case native.EventClosed:
		l.closed(event)
	case native.EventListenerClosed:
		l.listenerClosed(event)
	case native.EventAcceptFailed:
		if to := l.group.acceptor(event.Listener); to != nil && to.failed != nil {
			to.failed(syscall.Errno(-event.Error))
			l.wokeSomebody()
		}
	case native.EventRefused:
		l.refused(event)
	case native.EventTimer:
		l.blamed = nil
		if f := l.timers[event.Token]; f != nil {
			delete(l.timers, event.Token)
			f()
		}
	default:
		l.blamed = nil
		l.datagramEvent(event)
	}
}

func (l *nativeLoop) accepted(listener, id native.ID) {
	c := &Conn{home: l, id: id}
	to := l.group.acceptor(listener)
	if to == nil {
		// It was closed, and what was on its way to another loop came later.
		c.sink = discard{}
		l.connections[id] = c
		c.abort(nil)
		return
	}
	c.local, c.remote = l.addresses(id)
	c.sink = to.accept(c)
	l.connections[id] = c
	l.blamed = c
	c.sink.opened(c)
}

// discard is the sink of connections that nobody wants.
type discard struct{}

func (discard) opened(*Conn)        {}
func (discard) data(*Conn, []byte)  {}
func (discard) ended(*Conn)         {}
func (discard) writable(*Conn)      {}
func (discard) deadline(*Conn)      {}
func (discard) draining(*Conn)      {}
func (discard) closed(*Conn, error) {}

func (l *nativeLoop) connecting(token uint64, id native.ID) {
	c := l.dialling[token]
	if c == nil {
		return
	}
	l.connections[id] = c
	c.mu.Lock()
	c.id = id
	c.ask(0) // what was asked for meanwhile
}

func (l *nativeLoop) deadline(c *Conn) {
	c.mu.Lock()
	due := !c.deadline.IsZero() && !time.Now().Before(c.deadline)
	closing := c.state == stateClosing
	if due && closing && l.library.TakenByPeer(c.id) != c.looked {
		// A slow reader, but one that reads.
		l.limitClose(c)
		due = false
	}
	c.mu.Unlock()
	switch {
	case due && closing:
		c.abort(errTimeout) // whoever its events are for
	case due:
		l.blamed = c
		c.sink.deadline(c)
	}
}

func (l *nativeLoop) closed(event *native.Event) {
	c := l.connections[event.Connection]
	if c == nil {
		return
	}
	delete(l.connections, event.Connection)
	delete(l.dialling, event.Token)
	l.lost(c, closeError(event))
}

// lost reports the end of a connection.
func (l *nativeLoop) lost(c *Conn, err error) {
	c.mu.Lock()
	c.state, c.id, c.gone = stateClosed, 0, true
	c.out.drop(l.pool)
	if c.direct != nil {
		c.direct.Release()
		c.direct = nil
	}
	if c.cause != nil {
		err = c.cause
	}
	c.mu.Unlock()
	l.blamed = c
	c.sink.closed(c, err)
}

func closeError(event *native.Event) error {
	switch event.Reason {
	case native.ClosedLocal, native.ClosedPeer:
		return nil
	case native.ClosedReset:
		return errReset
	case native.ClosedTimeout:
		return errTimeout
	case native.ClosedLimit:
		return ErrLimit
	}
	return syscall.Errno(-event.Error)
}

func (l *nativeLoop) listenerClosed(event *native.Event) {
	to := l.group.acceptor(event.Listener)
	if to == nil {
		return
	}
	listener := event.Listener
	var failure error
	if event.Error != 0 {
		failure = fmt.Errorf("accepting on %s: %w", to.address, syscall.Errno(-event.Error))
	}
	settle := func() {
		l.group.setAcceptor(listener, nil)
		close(to.settled)
	}
	if len(l.group.loops) == 1 {
		settle()
	} else {
		go func() {
			// Connections that were given to other loops are reported there: in the turn that they are in now, or in the next.
			for range 2 {
				for _, other := range l.group.loops {
					other.(*nativeLoop).call(func() {})
				}
			}
			settle()
		}()
	}
	to.end(failure)
}

func (l *nativeLoop) refused(event *native.Event) {
	if c := l.dialling[event.Token]; c != nil {
		delete(l.dialling, event.Token)
		err := fmt.Errorf("%w: its loop has as many connections as WithConnections says", ErrLimit)
		if event.Reason == native.RefusedError {
			err = syscall.Errno(-event.Error)
		}
		l.lost(c, err)
		return
	}
	c := l.connections[event.Connection]
	if c == nil {
		return // it is closing already
	}
	c.mu.Lock()
	isFile := event.Token == c.files.token && c.files.token != 0
	if !isFile && event.Token != tokenSend {
		c.mu.Unlock()
		return
	}
	lost := event.Reason != native.RefusedFull
	if why := failureOfSend(event); why != 0 && c.state <= stateEnding {
		// What the peer sent before is still to be read.
		c.mu.Unlock()
		l.sendsNoMore(c, why)
		return
	}
	if isFile {
		lost = !c.files.takeBack() || lost
		c.out.blocked = true
	} else if event.Reason == native.RefusedFull && l.sendMemory.splits(c.out.flying, l.remote) {
		c.out.flying = 0 // followUpSends lists it again
	} else {
		c.out.turnedAway()
	}
	c.mu.Unlock()
	if lost {
		c.abort(nil)
	}
}

// failureOfSend is the error of a send that was refused as none can be made any more; 0 for another refusal.
func failureOfSend(event *native.Event) syscall.Errno {
	switch event.Reason {
	case native.RefusedError:
		return syscall.Errno(-event.Error)
	case native.RefusedClosing, native.RefusedStale:
		return syscall.EPIPE
	}
	return 0
}

// sendsNoMore notes that the socket takes no more: whoever writes is told why, once as by the kernel. What is to be received goes
// on, and the loop tells of the end. A handler whose connection is paused has that now: it takes nothing more until it can write.
func (l *nativeLoop) sendsNoMore(c *Conn, why syscall.Errno) {
	c.mu.Lock()
	if c.state == stateOpen {
		c.broken = why
		c.state = stateEnding
	}
	waits := c.out.refused && c.state < stateClosing // who has closed it hears of its end alone
	c.out.flying, c.out.blocked, c.out.refused = 0, false, false
	c.out.drop(l.pool)
	c.files.token, c.files.of = 0, nil
	if job := c.files.job; job != nil {
		signal(job.done)
		l.wokeSomebody()
	}
	again := c.requests != 0 && !c.listed && c.id != 0
	c.listed = c.listed || again
	_, isHandler := c.sink.(*handlerSink)
	over := isHandler && c.pause
	c.mu.Unlock()
	if over {
		c.abort(nil)
		return
	}
	if again {
		l.serve(c)
	}
	if waits {
		l.blamed = c
		c.sink.writable(c)
		l.blamed = nil
	}
}

// addresses asks for both addresses of a connection. Connections in a row with the same local one share it.
func (l *nativeLoop) addresses(id native.ID) (local, remote net.Addr) {
	one, other := l.library.Addresses(id)
	if l.local == nil || one != l.localText {
		l.local, l.localText = parseAddress(one), one
	}
	return l.local, parseAddress(other)
}

// parseAddress makes an address of the library's text; an unnamed one of a text that is none.
func parseAddress(text string) net.Addr {
	if path, isUnix := strings.CutPrefix(text, unixPrefix); isUnix {
		if path == "" {
			path = "@" // as package net calls who has no name
		}
		return &net.UnixAddr{Name: unescapeName(path), Net: "unix"}
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(withName(address))
}

// serve implements home.
func (l *nativeLoop) serve(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.listed = append(l.listed, c)
	l.wake()
}

// post implements home.
func (l *nativeLoop) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.posted = append(l.posted, f)
	l.wake()
	return true
}

// wake ends the loop's wait, if it waits. The lock is held: the remote is not released under a wake.
func (l *nativeLoop) wake() {
	if l.asleep.Load() {
		l.asleep.Store(false)
		l.remote.Wake()
	}
}

func (l *nativeLoop) here() bool {
	// While the loop yields or waits, who asks is somebody else, and need not ask the kernel.
	return !l.away.Load() && l.thread == syscall.Gettid()
}

func (l *nativeLoop) number() int       { return l.index }
func (l *nativeLoop) inProcess() int    { return l.unique }
func (l *nativeLoop) settings() *config { return l.group.config }
func (l *nativeLoop) memory() *blocks   { return l.pool }
func (l *nativeLoop) wokeSomebody()     { l.woken = true }
func (l *nativeLoop) readerRuns()       { l.yielding.unserved.Add(-1) }

func (l *nativeLoop) wakesReader() {
	l.readers++
	l.yielding.unserved.Add(1)
}

func (l *nativeLoop) queuedBelow(c *Conn) int { return l.library.Queued(c.id) }

// call runs f on the loop and waits for it; false if the loop has ended. If f panics or calls runtime.Goexit, that ends the
// caller, as if it had run f itself. That is what it does on the loop, where nobody else would.
func (l *nativeLoop) call(f func()) bool {
	if l.here() {
		f()
		return true
	}
	done := make(chan struct{})
	returned, recovered := false, any(nil)
	ok := l.post(func() {
		defer close(done)
		defer func() { recovered = recover() }()
		f()
		returned = true
	})
	if !ok {
		return false
	}
	<-done
	switch {
	case recovered != nil:
		panic(recovered)
	case !returned:
		runtime.Goexit()
	}
	return true
}

// dial connects c, and reports to its sink: opened, or closed.
func (l *nativeLoop) dial(c *Conn, network, address string, config *config) error {
	if network == "unix" {
		address = unixPrefix + address
	}
	address = libraryAddress(address)
	ok := l.post(func() {
		l.token++
		token := l.token
		l.dialling[token] = c
		size := int(unsafe.Sizeof(native.ConnectOptions{}))
		b, err := l.pool.get(size + len(address))
		if err != nil {
			delete(l.dialling, token)
			l.lost(c, err)
			return
		}
		l.scratch = append(l.scratch, b)
		options := (*native.ConnectOptions)(unsafe.Pointer(unsafe.SliceData(b.memory)))
		copy(b.memory[size:], address)
		*options = native.ConnectOptions{
			Size: uint32(size), AddressLength: uint32(len(address)), Address: unsafe.Pointer(&b.memory[size]),
			TimeoutNS: -1, Stream: l.streamOptions(config),
		}
		l.push(native.Command{
			Kind: native.CommandConnect, Token: token, Data: unsafe.Pointer(options), Length: uint32(size),
		})
	})
	if !ok {
		return ErrShutdown
	}
	return nil
}

// every implements backend.
func (l *nativeLoop) every(f func() time.Duration) {
	var step func()
	step = func() {
		if next := f(); next > 0 {
			l.token++
			l.timers[l.token] = step
			l.push(native.Command{Kind: native.CommandSetTimer, Token: l.token, TimeNS: next.Nanoseconds()})
		}
	}
	l.post(step)
}

// each implements backend.
func (l *nativeLoop) each(f func(c *Conn)) {
	done := make(chan struct{})
	var left []*Conn
	var step func()
	step = func() {
		defer func() {
			if len(left) == 0 || !l.post(step) {
				close(done)
			}
		}()
		for len(left) > 0 {
			c := left[0]
			left = left[1:]
			l.blamed = c
			f(c)
			l.blamed = nil
		}
	}
	if l.post(func() { left = slices.Collect(maps.Values(l.connections)); step() }) {
		<-done
	}
}

var describedCounters = sync.OnceValue(native.DescribeCounters)

// sendChunksUsed is the place of that counter.
var sendChunksUsed = sync.OnceValue(func() int {
	for _, info := range describedCounters() {
		if info.Name == "send_chunks_used" {
			return info.Index
		}
	}
	panic("quoit: the library counts no send_chunks_used")
})

// counters implements backend.
func (l *nativeLoop) counters() Counters {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil
	}
	values := l.remote.Counters()
	l.mu.Unlock()
	described := describedCounters()
	all := make(Counters, len(described))
	for index, info := range described {
		all[index] = Counter{Name: info.Name, About: info.About, Gauge: info.Gauge, Value: values[info.Index]}
	}
	return all
}

// end implements backend.
func (l *nativeLoop) end() {
	l.post(func() { l.stopping = true })
	<-l.gone
}

// finish ends everything that is left, on the loop's thread.
func (l *nativeLoop) finish() {
	l.mu.Lock()
	l.ended = true
	l.asleep.Store(false)
	l.listed = nil
	l.mu.Unlock()
	l.runPosted() // somebody may wait for it
	l.followUpSends()
	for id, c := range l.connections {
		delete(l.connections, id)
		l.lost(c, l.why)
	}
	for token, c := range l.dialling {
		delete(l.dialling, token)
		if !c.gone {
			l.lost(c, l.why)
		}
	}
	l.finishDatagrams()
	l.group.mu.Lock()
	var mine []*listening
	for _, to := range l.group.accepts {
		if to.loop == l.index {
			mine = append(mine, to)
		}
	}
	l.group.mu.Unlock()
	for _, to := range mine {
		to.end(l.why)
	}
	l.dropCommands()
	if err := l.free(); err != nil {
		l.group.config.logger.Error("quoit: a loop was not ended cleanly", "error", err)
	}
}
