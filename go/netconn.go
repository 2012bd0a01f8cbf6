package quoit

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"weak"
)

// NetConn is a net.Conn on a loop: what Listener.Accept and Dialer.Dial return where libquoit runs, and what
// Conn.Detach makes. Its methods may be called from any goroutine, at the same time.
//
// Read and Write copy: no memory of the caller's is used after they return. Write returns when its bytes are queued,
// at most as many as WithWaterMarks says, and Close lets them leave first, at most for the time of WithCloseLimit; both
// as with a kernel's socket buffer, but the queue ends with the loops.
//
// Only the loop can end a call's wait, so that in a callback on its own loop a call that would have to wait returns
// ErrOnLoop. The loops of EngineStd have no thread to know that by: there such a call waits, and the loop, with all of
// its connections, hangs. Make calls that may wait on a goroutine, whatever the engine.
//
// One that the program has forgotten without closing it is closed when the garbage collector finds it, as those of package
// net are.
type NetConn struct {
	*netConn
}

// netConn is what the loop knows of a NetConn: all but the handle that the program holds.
type netConn struct {
	conn *Conn

	forgotten runtime.Cleanup // what closes it when its handle is collected

	// One reader and one writer wait at a time; the others queue up here.
	reading sync.Mutex
	writing sync.Mutex

	mu      sync.Mutex
	in      inbound
	into    []byte // of the reader that waits; filled by the loop
	filled  int
	waits   bool // a reader waits
	called  bool // it was called since
	closed  bool // by this end
	drops   bool // Close drops what has not left (SetLinger)
	lost    bool // by the other end, or the network
	told    bool // of the error that it was lost by, by a write, before it was: the kernel tells it once
	failure error

	readable chan struct{} // room for one; tells the reader to look
	writable chan struct{} // likewise, the writer

	readLimit  limit
	writeLimit limit
}

// limit is a deadline.
type limit struct {
	at     time.Time
	passed bool
	timer  *time.Timer
}

// newNetConn makes the connection a net.Conn. On the loop, or before the loop knows c.
func newNetConn(c *Conn) *netConn {
	return &netConn{
		conn:     c,
		readable: make(chan struct{}, 1),
		writable: make(chan struct{}, 1),
	}
}

// handle makes what the program holds, once: nothing of the loops refers to it, so that it can be forgotten.
func (n *netConn) handle() *NetConn {
	handle := &NetConn{n}
	forgotten := runtime.AddCleanup(handle, func(n *netConn) {
		_ = n.Close() // or it has been closed
	}, n)
	n.mu.Lock()
	n.forgotten = forgotten
	n.mu.Unlock()
	return handle
}

// Read implements net.Conn.
func (n *NetConn) Read(p []byte) (int, error) {
	defer runtime.KeepAlive(n) // who waits has not forgotten it
	return n.netConn.Read(p)
}

// WaitRead waits until there are bytes to be read, or no more can come: it returns nil in the first case, and otherwise what Read
// would return. A program that has taken its buffer only then has none for connections that are idle. The read deadline limits
// the wait. It may be called on any goroutine, beside Read.
func (n *NetConn) WaitRead() error {
	defer runtime.KeepAlive(n)
	_, err := n.read(nil, true)
	return err
}

// Write implements net.Conn.
func (n *NetConn) Write(p []byte) (int, error) {
	defer runtime.KeepAlive(n)
	return n.netConn.Write(p)
}

// ReadFrom implements io.ReaderFrom: it writes what r has. A regular file, also within an io.LimitedReader, is sent by the
// kernel from where it is (sendfile(2)), as by net.TCPConn's: in parts of the high-water mark, of which one is on its way at
// a time, and the file stands behind the last one then. Of everything else, and of a few kilobytes, it copies parts of 16 KiB.
func (n *NetConn) ReadFrom(r io.Reader) (int64, error) {
	defer runtime.KeepAlive(n)
	return n.netConn.ReadFrom(r)
}

var _ interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
} = (*NetConn)(nil)

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// lock waits for others that read, or write; false if only the calling thread, a loop's, could end their wait.
func lock(turn *sync.Mutex, here func() bool) bool {
	if turn.TryLock() {
		return true
	}
	if here() {
		return false
	}
	turn.Lock()
	return true
}

// netSink reports to a NetConn.
type netSink struct{ n *netConn }

func (s netSink) opened(*Conn) {}

func (s netSink) data(c *Conn, view []byte) {
	n := s.n
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	if n.into != nil && len(n.in.unread) == 0 {
		n.filled = copy(n.into, view)
		n.into = nil
		view = view[n.filled:]
	}
	if len(view) > 0 {
		n.in.keep(view)
	}
	if len(n.in.unread) >= c.home.settings().inbound {
		c.setPause(true)
	}
	wake := n.waits
	n.waits = false
	n.called = n.called || wake
	n.mu.Unlock()
	if wake {
		c.home.wakesReader()
		signal(n.readable)
	}
}

func (s netSink) ended(c *Conn) {
	s.n.mu.Lock()
	s.n.in.ended = true
	s.n.mu.Unlock()
	s.n.tellAll(c)
}

func (s netSink) writable(c *Conn) {
	signal(s.n.writable)
	c.home.wokeSomebody()
}

func (s netSink) deadline(*Conn) {}

func (s netSink) draining(c *Conn) { _ = c.Close() }

func (s netSink) closed(c *Conn, err error) {
	n := s.n
	n.mu.Lock()
	n.lost = true
	if n.failure == nil && !n.told {
		n.failure = err
	}
	stop(&n.readLimit)
	stop(&n.writeLimit)
	if n.closed {
		n.in.drop()
	}
	n.mu.Unlock()
	n.tellAll(c)
}

func (n *netConn) tellAll(c *Conn) {
	signal(n.readable)
	signal(n.writable)
	c.home.wokeSomebody()
}

// Read is NetConn.Read.
func (n *netConn) Read(p []byte) (int, error) { return n.read(p, false) }

// read reads, or waits until there is something and leaves it.
func (n *netConn) read(p []byte, leaves bool) (int, error) {
	if !lock(&n.reading, n.conn.home.here) {
		return 0, n.opError("read", ErrOnLoop)
	}
	defer n.reading.Unlock()
	for {
		count, wait, err := n.tryRead(p, leaves)
		if !wait {
			if err != nil && err != io.EOF {
				err = n.opError("read", err)
			}
			return count, err
		}
		if n.conn.home.here() {
			n.mu.Lock()
			n.into, n.waits = nil, false
			n.mu.Unlock()
			return 0, n.opError("read", ErrOnLoop)
		}
		<-n.readable
	}
}

// tryRead returns what is there, or that the reader must wait.
func (n *netConn) tryRead(p []byte, leaves bool) (count int, wait bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.called {
		n.called = false
		n.conn.home.readerRuns()
	}
	if count = n.filled; count > 0 {
		// The loop has filled the memory. That counts, whatever else has happened since.
		n.filled = 0
		return count, false, nil
	}
	n.into, n.waits = nil, false
	switch {
	case n.closed:
		return 0, false, errClosed
	case len(p) == 0 && !leaves:
		return 0, false, nil
	case n.readLimit.expired():
		return 0, false, errTimeout
	case len(n.in.unread) > 0 && leaves:
		return 0, false, nil
	case len(n.in.unread) > 0:
		count = copy(p, n.in.unread)
		n.in.take(count)
		n.in.keepRest()
		n.conn.consumed(len(n.in.unread)) // this lock is the outer one of the two
		return count, false, nil
	case n.failure != nil:
		return 0, false, n.failure
	case n.in.ended || n.lost:
		return 0, false, io.EOF
	}
	n.into, n.waits = p, true
	return 0, true, nil
}

// Write is NetConn.Write.
func (n *netConn) Write(p []byte) (int, error) {
	if !lock(&n.writing, n.conn.home.here) {
		return 0, n.opError("write", ErrOnLoop)
	}
	defer n.writing.Unlock()
	written := 0
	for {
		count, err := n.tryWrite(p[written:])
		written += count
		if err != nil {
			return written, n.opError("write", err)
		}
		if written == len(p) {
			return written, nil
		}
		if n.conn.home.here() {
			return written, n.opError("write", ErrOnLoop)
		}
		<-n.writable
	}
}

// tryWrite sends what can leave at once, and queues as much of the rest as there is room for. Where that is not all, the
// writable channel tells of more.
func (n *netConn) tryWrite(p []byte) (int, error) {
	n.mu.Lock()
	closed, expired, failure, lost := n.closed, n.writeLimit.expired(), n.failure, n.lost
	n.mu.Unlock()
	switch {
	case closed:
		return 0, errClosed
	case expired:
		return 0, errTimeout
	case failure != nil:
		return 0, failure
	}
	c := n.conn
	c.mu.Lock()
	if c.state != stateOpen {
		c.mu.Unlock()
		return 0, n.sendsNoMore(lost)
	}
	sent := c.home.sendNow(c, p)
	p = p[sent:]
	// Less than nothing if its share has become smaller than what it has.
	count := max(0, min(len(p), c.home.memory().share(c.home.settings().highWater)-c.out.queued()))
	c.out.refused = c.out.refused || count < len(p)
	if count == 0 {
		c.mu.Unlock()
		return sent, nil
	}
	if err := appendTo(&c.out, c.home.memory(), p[:count]); err != nil {
		c.mu.Unlock()
		return sent, err
	}
	c.ask(requestFlush)
	return sent + count, nil
}

// sendsNoMore is what a writer is told whose connection takes no more: what broke it, once, or that there is an end.
func (n *netConn) sendsNoMore(lost bool) error {
	n.conn.mu.Lock()
	broken := n.conn.broken
	n.conn.broken = nil
	n.conn.mu.Unlock()
	switch {
	case broken != nil:
		n.mu.Lock()
		n.told = true
		n.mu.Unlock()
		return broken
	case lost:
		return errReset
	}
	return errShutdownWrite
}

// Close implements net.Conn: it does not wait. What was written leaves first.
func (n *netConn) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return n.opError("close", errClosed)
	}
	n.closed = true
	n.forgotten.Stop()
	stop(&n.readLimit)
	stop(&n.writeLimit)
	n.in.drop()
	drops := n.drops
	n.mu.Unlock()
	if drops {
		_ = n.conn.Abort() // or it has ended by itself
	} else {
		_ = n.conn.Close() // likewise
	}
	signal(n.readable)
	signal(n.writable)
	return nil
}

// CloseWrite ends the sending direction after what was written, as net.TCPConn's does; once more changes nothing. A Write
// behind it fails with syscall.EPIPE.
func (n *netConn) CloseWrite() error {
	if err := n.conn.CloseWrite(); err != nil {
		if n.conn.isEnding() {
			return nil
		}
		n.mu.Lock()
		closed := n.closed
		n.mu.Unlock()
		switch {
		case closed:
		case networkOf(n.conn.socketAddr()) == "unix":
			return nil // as the kernel has it
		default:
			err = os.NewSyscallError("shutdown", syscall.ENOTCONN) // it was the peer, or the network
		}
		return n.opError("close", err)
	}
	signal(n.writable)
	return nil
}

// Abort closes with a reset: nothing that is queued leaves.
func (n *netConn) Abort() error {
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	n.forgotten.Stop()
	n.in.drop()
	n.mu.Unlock()
	err := n.conn.Abort()
	signal(n.readable)
	signal(n.writable)
	if closed || err != nil {
		return n.opError("close", errClosed)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (n *netConn) LocalAddr() net.Addr { return n.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (n *netConn) RemoteAddr() net.Addr { return n.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (n *netConn) SetDeadline(t time.Time) error {
	if err := n.SetReadDeadline(t); err != nil {
		return err
	}
	return n.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn. A time in the past wakes a reader.
func (n *netConn) SetReadDeadline(t time.Time) error { return n.setLimit(&n.readLimit, n.readable, t) }

// SetWriteDeadline implements net.Conn. A time in the past wakes a writer.
func (n *netConn) SetWriteDeadline(t time.Time) error {
	return n.setLimit(&n.writeLimit, n.writable, t)
}

func (n *netConn) setLimit(of *limit, waiter chan struct{}, t time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.localError("set", errClosed)
	}
	of.set(&n.mu, waiter, t)
	return nil
}

// set moves the deadline; when it has passed, waiter is signalled. The lock mu is held, and guards the limit.
func (l *limit) set(mu *sync.Mutex, waiter chan struct{}, t time.Time) {
	l.at, l.passed = t, false
	if t.IsZero() {
		stop(l)
		return
	}
	after := time.Until(t)
	if after <= 0 {
		stop(l)
		l.passed = true
		signal(waiter)
		return
	}
	if l.timer != nil {
		l.timer.Reset(after)
		return
	}
	l.timer = time.AfterFunc(after, func() {
		mu.Lock()
		defer mu.Unlock()
		// It may have been moved while this was on its way.
		if l.at.IsZero() || l.passed {
			return
		}
		if left := time.Until(l.at); left > 0 {
			l.timer.Reset(left)
			return
		}
		l.passed = true
		signal(waiter)
	})
}

// expired is whether the deadline has passed, also where its timer has not fired yet.
func (l *limit) expired() bool { return l.passed }

func stop(l *limit) {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.at = time.Time{}
}

// errShutdownWrite is that of a write after CloseWrite.
var errShutdownWrite error = syscall.EPIPE

func (n *netConn) opError(op string, err error) error {
	return &net.OpError{
		Op: op, Net: networkOf(n.conn.local), Source: n.conn.local, Addr: n.conn.remote, Err: asCall(op, err),
	}
}

// localError is of what concerns this end alone, as package net names it then.
func (n *netConn) localError(op string, err error) error {
	return &net.OpError{Op: op, Net: networkOf(n.conn.local), Addr: n.conn.local, Err: err}
}

func networkOf(address net.Addr) string {
	if address == nil {
		return "tcp"
	}
	return address.Network()
}

// Detach makes the connection a net.Conn, with the bytes that have arrived and were not consumed: no callback of the
// handler follows, but for Shutdown of its server, which closes it or tells a DetachedDrainer. Its Read and Write may then be called on other
// goroutines. Loop.
func (c *Conn) Detach() (*NetConn, error) {
	if c.IsClosed() {
		return nil, errClosed
	}
	n := newNetConn(c)
	c.in.keepRest()
	n.in, c.in = c.in, inbound{}
	c.mu.Lock()
	c.deadline = time.Time{} // it was the handler's
	c.released = true
	c.mu.Unlock()
	handle := n.handle()
	if from, isHandler := c.sink.(*handlerSink); isHandler {
		c.sink = detached{netSink{n}, weak.Make(handle), from}
	} else {
		c.sink = netSink{n}
	}
	c.consumed(len(n.in.unread)) // by the handler, for which nothing is settled any more
	return handle, nil
}

func (c *Conn) setReleased(released bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = released
}

// detached is a netSink that keeps being counted by a server.
type detached struct {
	netSink
	handle weak.Pointer[NetConn]
	from   *handlerSink
}

func (s detached) draining(c *Conn) {
	if s.from.detached == nil {
		s.netSink.draining(c)
		return
	}
	handle := s.handle.Value()
	if handle == nil {
		return // it is being closed, as the program has forgotten it
	}
	// For this call it is the handler's again.
	c.setReleased(false)
	defer s.from.guard(c)
	s.from.detached.OnDrainDetached(handle)
	c.setReleased(true)
}

func (s detached) closed(c *Conn, err error) {
	s.from.server.remove(c)
	s.netSink.closed(c, err)
}
