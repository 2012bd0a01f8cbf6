package quoit

import (
	"io"
	"net"
	"sync"
	"time"
)

// Conn is a connection of a loop, as handlers see it.
//
// Methods marked "loop" may be called only on the connection's loop: in callbacks for any of its connections, and in
// functions given to Run. All others may be called from any goroutine, at any time; after the connection is closed
// they do nothing, and those that return an error return net.ErrClosed.
type Conn struct {
	home home
	sink sink   // loop
	id   uint64 // the library's; 0 before it is connecting and after it is gone. Under the lock, written on the loop
	gone bool   // no more of its events follow

	in      inbound // loop; empty once a net.Conn has taken over
	context any     // loop

	mu       sync.Mutex
	out      outbound
	direct   directSender // nil if there is none, or not yet
	files    files
	requests requests
	listed   bool // in the loop's list of connections with requests
	state    connState
	deadline time.Time
	closeBy  time.Time // when what Close left to be sent is dropped; zero before it was
	looked   int64     // loop; what native.TakenByPeer said when closeBy was set
	pause    bool      // receiving is to be paused
	released bool      // its handler has let go of it: what becomes of that is nothing to it
	cause    error     // why this end aborted it
	broken   error     // what sending failed with, until a writer is told

	local, remote net.Addr
	proxy         *ProxyHeader // set before its handler hears of it
}

type connState uint8

const (
	stateOpen   connState = iota
	stateEnding           // its sending direction is ended, or will be after what is queued
	stateClosing
	stateClosed // no event follows but closed; or it has come
)

// requests are what a loop has to do for a connection.
type requests uint8

const (
	requestFlush requests = 1 << iota
	requestShutdown
	requestClose
	requestAbort
	requestDeadline
	requestPause // or to resume, as pause says
	requestKeepRest
	requestDirect // of letting goroutines send while the loop sleeps
)

// home is the loop of a connection, as seen from any goroutine.
type home interface {
	// serve has the loop look at the connection's requests. It must not be called under the connection's lock.
	serve(c *Conn)
	// post runs f on the loop; false if that has ended.
	post(f func()) bool
	// here returns whether the calling thread is the loop's.
	here() bool
	// queuedBelow is the number of a connection's bytes that the library has queued. On the loop.
	queuedBelow(c *Conn) int
	// sendNow sends of p what can leave at once, without the loop, and returns how much that is: the first bytes, or none. The rest
	// is to be queued. The lock is held. Any goroutine.
	sendNow(c *Conn, p []byte) int
	// wakesReader notes that a reader is about to be made ready, on the loop; and readerRuns that it runs, on its goroutine.
	wakesReader()
	readerRuns()
	// wokeSomebody notes that a goroutine was made ready, on the loop: it lets it run before it waits.
	wokeSomebody()
	// onSocket runs f with the options of a connection's socket, and waits for it: on the loop, where that is a thread. It
	// returns an error if the connection has gone.
	onSocket(c *Conn, f func(socket streamSocket) error) error
	number() int
	settings() *config
	memory() *blocks
}

// directSender sends on a connection whose loop sleeps. Under the connection's lock.
type directSender interface {
	// TrySend sends what the socket takes at once, and returns how much that is.
	TrySend(p []byte) int
	Release()
}

// ask adds requests, and tells the loop if it does not know of the connection yet. The lock is held, and released.
func (c *Conn) ask(requests requests) {
	c.requests |= requests
	tell := !c.listed
	c.listed = true
	c.mu.Unlock()
	if tell {
		c.home.serve(c)
	}
}

// Read copies received bytes to p and consumes them. It never waits: with no bytes there it returns ErrNoData, or
// io.EOF after the peer's end. Loop.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.in.unread) == 0 && len(p) > 0 {
		if c.in.ended {
			return 0, io.EOF
		}
		return 0, ErrNoData
	}
	n := copy(p, c.in.unread)
	c.Discard(n)
	return n, nil
}

// Peek returns a view of the next n received bytes, without consuming them. It is valid until the callback returns
// and must not be changed. Where fewer are there it returns those, and ErrNoData. Loop.
func (c *Conn) Peek(n int) ([]byte, error) {
	if n > len(c.in.unread) {
		return c.in.unread, ErrNoData
	}
	return c.in.unread[:n:n], nil
}

// Next is Peek and then Discard, if n bytes are there; otherwise nothing is consumed. Loop.
func (c *Conn) Next(n int) ([]byte, error) {
	view, err := c.Peek(n)
	if err == nil {
		c.Discard(n)
	}
	return view, err
}

// Discard consumes up to n received bytes, and returns how many. Loop.
func (c *Conn) Discard(n int) int {
	n = min(n, len(c.in.unread))
	c.in.take(n)
	if c.in.owner != nil {
		// Memory is given back, and receiving goes on, after the callback: views are still in use.
		c.mu.Lock()
		c.ask(requestKeepRest)
	}
	return n
}

// Buffered is the number of received bytes that were not consumed. Loop.
func (c *Conn) Buffered() int { return len(c.in.unread) }

// WriteTo writes what is received and not consumed to w, in parts, and consumes what w takes. With another Conn, or
// the same, that ends with ErrFull where there is no room for the rest: call it again in OnWritable. It implements
// io.WriterTo. Loop.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	total, part := int64(0), keptSize
	if to, is := w.(*Conn); is {
		part = min(part, to.home.settings().highWater) // more it never takes at once
	}
	for len(c.in.unread) > 0 {
		n, err := w.Write(c.in.unread[:min(len(c.in.unread), part)])
		total += int64(c.Discard(n))
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Write queues a copy of p, all of it or nothing. What is queued in one turn of the loop leaves together; writes of one
// goroutine keep their order. Errors: ErrFull, ErrTooLarge, net.ErrClosed; syscall.ENOMEM where the system has no memory.
// It never waits.
func (c *Conn) Write(p []byte) (int, error) { return queue(c, p) }

// WriteString is Write without a conversion.
func (c *Conn) WriteString(s string) (int, error) { return queue(c, s) }

func queue[T []byte | string](c *Conn, p T) (int, error) {
	c.mu.Lock()
	if err := c.writable(len(p)); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	if err := appendTo(&c.out, c.home.memory(), p); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	c.ask(requestFlush)
	return len(p), nil
}

// writable returns why n bytes cannot be queued now. The lock is held.
func (c *Conn) writable(n int) error {
	high := c.home.settings().highWater
	switch queued := c.out.queued(); {
	case c.state != stateOpen:
		return errClosed
	case n > high:
		return ErrTooLarge
	case queued > 0 && queued+n > c.home.memory().share(high):
		c.out.refused = true
		return ErrFull
	}
	return nil
}

// waitsForRoom is whether a write was refused and OnWritable has not come.
func (c *Conn) waitsForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.refused && c.state == stateOpen
}

// Queued is the number of bytes that were written and not yet taken by the library below. Any goroutine.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.queued()
}

// Unsent is the number of bytes that were written and that the kernel has not taken: those of Queued, and what the library below
// has queued. Loop.
func (c *Conn) Unsent() int {
	return c.Queued() + c.home.queuedBelow(c)
}

// CloseWrite ends the sending direction after what was written; bytes are still received.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.state != stateOpen {
		c.mu.Unlock()
		return errClosed
	}
	c.state = stateEnding
	c.ask(requestShutdown)
	return nil
}

// Close ends the connection gracefully: what was written leaves first, and the peer's end is waited for, as long as the
// peer takes something (WithCloseLimit). It does not wait itself. Nothing more is delivered but OnClose, and a deadline is
// forgotten.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.state >= stateClosing {
		c.mu.Unlock()
		return errClosed
	}
	c.state = stateClosing
	c.deadline = time.Time{} // it was for what ends now, and the limit counts from here
	c.closeBy = time.Now().Add(c.home.settings().closeLimit)
	c.ask(requestClose)
	return nil
}

// Abort ends the connection now: what is queued is dropped, and the peer sees a reset. OnClose follows.
func (c *Conn) Abort() error { return c.abort(nil) }

// abort ends the connection now; cause is what OnClose is told.
func (c *Conn) abort(cause error) error {
	c.mu.Lock()
	if c.state == stateClosed {
		c.mu.Unlock()
		return errClosed
	}
	if c.cause == nil {
		c.cause = cause
	}
	c.state = stateClosed
	c.deadline = time.Time{}
	c.out.drop(c.home.memory())
	c.ask(requestAbort)
	return nil
}

// panicked ends the connection of a handler that has panicked: now, unless the handler had closed it, as then what it wrote
// before still leaves. It returns false, and does nothing, if the handler had detached it, so that it is another's.
func (c *Conn) panicked() bool {
	c.mu.Lock()
	if c.released {
		c.mu.Unlock()
		return false
	}
	if c.cause == nil {
		c.cause = ErrPanicked
	}
	closed := c.state == stateClosing
	c.mu.Unlock()
	if !closed {
		c.abort(ErrPanicked)
	}
	return true
}

// IsClosed says whether Close or Abort was called, or the connection has ended.
func (c *Conn) IsClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state >= stateClosing
}

// isEnding is whether the sending direction was ended, and nothing else.
func (c *Conn) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == stateEnding
}

// SetDeadline sets when the connection is aborted, with os.ErrDeadlineExceeded for OnClose, or its DeadlineHandler is called,
// unless the deadline is moved before. The zero time clears it. It is exact to about a millisecond.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	if c.state >= stateClosing {
		c.mu.Unlock()
		return errClosed
	}
	c.deadline = t
	c.ask(requestDeadline)
	return nil
}

// Run runs f on the connection's loop, after the callback or the wait that is under way; net.ErrClosed if the loop has
// ended. f runs also if the connection was closed meanwhile.
func (c *Conn) Run(f func(c *Conn)) error {
	ok := c.home.post(func() {
		returned := false
		defer func() {
			if recovered := recover(); recovered != nil {
				reportPanic(c.reports(), c, recovered)
			} else if !returned {
				c.panicked() // runtime.Goexit, which the loop reports
			}
		}()
		f(c)
		returned = true
	})
	if !ok {
		return errClosed
	}
	return nil
}

// reports is whose logger is told of what its handler ends by: its server's, which others may have made the loops for. Loop.
func (c *Conn) reports() *config {
	switch to := c.sink.(type) {
	case *handlerSink:
		return to.config
	case *headerSink:
		return to.to.config
	case detached:
		return to.from.config
	}
	return c.home.settings()
}

// Context is what SetContext was given. Loop.
func (c *Conn) Context() any { return c.context }

// SetContext keeps a value with the connection. Loop.
func (c *Conn) SetContext(value any) { c.context = value }

// Loop is the number of the connection's loop, as for OnTick: from 0.
func (c *Conn) Loop() int { return c.home.number() }

// LocalAddr is this end's address, or the one that a balancer has named (WithProxyProtocol).
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's address, or the one that a balancer has named (WithProxyProtocol).
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// settle gives back memory behind a callback that has consumed something, unless it has handed the connection to a net.Conn: what
// that keeps, and whether it receives, is its own. Loop.
func (c *Conn) settle() {
	if _, isHandler := c.sink.(*handlerSink); isHandler {
		c.in.keepRest()
		c.balance()
	}
}

// balance pauses receiving where too much is kept, and resumes it where half was consumed, or a Gatherer waits for more. One that
// can send nothing is ended instead: its handler may well wait for that, and the loop would find no end. Loop.
func (c *Conn) balance() {
	kept := len(c.in.unread)
	if c.pause {
		c.consumed(kept)
	} else if kept >= c.home.settings().inbound {
		if c.broken != nil {
			c.abort(nil)
			return
		}
		c.setPause(true)
	}
}

// consumed resumes receiving, if it is paused and so much is left of what has come. Whoever keeps that calls it when it has become
// less, or when it takes over from another: the loop reports nothing more for as long as it is paused.
func (c *Conn) consumed(left int) {
	enough := c.home.settings().inbound / 2
	if s, isHandler := c.sink.(*handlerSink); isHandler {
		enough = max(enough, s.gathers-1) // it waits for more than that
	}
	if left <= enough {
		c.setPause(false)
	}
}

func (c *Conn) setPause(pause bool) {
	c.mu.Lock()
	if c.pause == pause {
		c.mu.Unlock()
		return
	}
	c.pause = pause
	c.ask(requestPause)
}
