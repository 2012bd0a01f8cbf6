package quoit

import (
	"fmt"
	"runtime/debug"
	"time"
)

// Handler serves the connections of a Server. All methods for the connections of one loop run on that loop, one
// after the other; those of different loops run at the same time. They must not block: while one runs, no other
// connection of its loop is served. Embed BaseHandler to write only those that matter.
//
// For one connection: OnOpen first, then OnData and OnWritable in any order, OnClose exactly once, and last.
type Handler interface {
	// OnOpen is called when a connection is there.
	OnOpen(c *Conn)

	// OnData is called when bytes have arrived. Read, Peek, Next and Discard reach them together with what was left
	// before; what is not consumed is kept for the next call. Views end with this call.
	OnData(c *Conn)

	// OnWritable is called when the queue has been full (a Write returned ErrFull) and is at its low-water mark.
	OnWritable(c *Conn)

	// OnClose is called when the connection is gone. err is nil if the two ends closed it in order; otherwise it says
	// what happened: syscall.ECONNRESET, os.ErrDeadlineExceeded, ErrPanicked, ErrLimit or the kernel's error.
	OnClose(c *Conn, err error)

	// OnTick is called on each loop when it starts, and again after the time that it returns; 0 or less ends that.
	OnTick(loop int) (next time.Duration)
}

// HalfCloser is a Handler that wants to know when a peer has ended its sending direction and may still receive.
// Without it such a connection is closed, after what was written has left; a handler whose Write was refused is called
// by OnWritable first.
type HalfCloser interface {
	// OnEndOfStream is called once all that came before was delivered. The handler must Close the connection in
	// the end.
	OnEndOfStream(c *Conn)
}

// DeadlineHandler is a Handler that decides itself what the deadline of a connection means (Conn.SetDeadline). Without it the
// connection is aborted then, and OnClose is told os.ErrDeadlineExceeded.
type DeadlineHandler interface {
	// OnDeadline is called once when a deadline has passed. The connection goes on until it is closed; another deadline may
	// be set.
	OnDeadline(c *Conn)
}

// Drainer is a Handler that wants to end its connections itself when the server shuts down. Without it each is closed
// as by Conn.Close.
type Drainer interface {
	// OnDrain is called once for each connection that is open when the server begins to shut down. The connection
	// goes on until the handler or the peer closes it, or the context of Shutdown ends.
	OnDrain(c *Conn)
}

// DetachedDrainer is a Handler that wants to end the connections that it has detached itself, too. Without it each is
// closed as by NetConn.Close when the server shuts down, and what is written to it after that is refused.
type DetachedDrainer interface {
	// OnDrainDetached is called once for each connection that was detached and is open when the server begins to shut
	// down. It goes on until it is closed, by whomever, or the context of Shutdown ends.
	OnDrainDetached(n *NetConn)
}

// Gatherer is a Handler that may wait for more of so many bytes before it consumes any. Start and Serve fail if that is more than
// WithInboundLimit lets a connection keep, as more would never come.
type Gatherer interface {
	// Gathers is called once, when the server starts.
	Gathers() (most int)
}

// BaseHandler has all methods of a Handler, which do nothing, but that received bytes are discarded.
type BaseHandler struct{}

// OnOpen does nothing.
func (BaseHandler) OnOpen(*Conn) {}

// OnData discards what has arrived.
func (BaseHandler) OnData(c *Conn) { c.Discard(c.Buffered()) }

// OnWritable does nothing.
func (BaseHandler) OnWritable(*Conn) {}

// OnClose does nothing.
func (BaseHandler) OnClose(*Conn, error) {}

// OnTick ends the ticking.
func (BaseHandler) OnTick(int) time.Duration { return 0 }

// sink is what a loop reports a connection's events to. All methods are called on the loop.
type sink interface {
	opened(c *Conn)
	// data must be done with the view when it returns.
	data(c *Conn, view []byte)
	ended(c *Conn)
	writable(c *Conn)
	deadline(c *Conn)
	draining(c *Conn)
	closed(c *Conn, err error)
}

// handlerSink calls a Handler.
type handlerSink struct {
	handler    Handler
	halfCloser HalfCloser      // or nil
	deadliner  DeadlineHandler // or nil
	drainer    Drainer         // or nil
	detached   DetachedDrainer // or nil
	gathers    int             // of a Gatherer
	config     *config
	server     *Server
}

func newHandlerSink(handler Handler, server *Server) *handlerSink {
	s := &handlerSink{handler: handler, config: server.config, server: server}
	s.halfCloser, _ = handler.(HalfCloser)
	s.deadliner, _ = handler.(DeadlineHandler)
	s.drainer, _ = handler.(Drainer)
	s.detached, _ = handler.(DetachedDrainer)
	if gatherer, is := handler.(Gatherer); is {
		s.gathers = gatherer.Gathers()
	}
	return s
}

func (s *handlerSink) opened(c *Conn) {
	s.server.add(c)
	defer s.guard(c)
	s.handler.OnOpen(c)
}

func (s *handlerSink) data(c *Conn, view []byte) {
	if c.IsClosed() {
		return
	}
	c.in.offer(view)
	defer s.afterData(c)
	s.handler.OnData(c)
}

// afterData keeps what the handler left, also when it panicked.
func (s *handlerSink) afterData(c *Conn) {
	if recovered := recover(); recovered != nil {
		c.in.drop()
		s.panicked(c, recovered)
		return
	}
	if c.sink != s {
		return // handed over to a net.Conn, with what was left
	}
	c.in.keepRest()
	c.balance()
}

func (s *handlerSink) ended(c *Conn) {
	c.in.ended = true
	if s.halfCloser == nil {
		s.closeEnded(c)
		return
	}
	defer s.guard(c)
	s.halfCloser.OnEndOfStream(c)
}

// closeEnded closes a connection that the peer has ended, unless the handler waits for room to write the rest.
func (s *handlerSink) closeEnded(c *Conn) {
	if !c.waitsForRoom() {
		_ = c.Close() // or the handler has
	}
}

func (s *handlerSink) writable(c *Conn) {
	defer s.guard(c)
	s.handler.OnWritable(c)
	if c.in.ended && s.halfCloser == nil {
		s.closeEnded(c)
	}
}

func (s *handlerSink) deadline(c *Conn) {
	if s.deadliner == nil {
		c.abort(errTimeout)
		return
	}
	defer s.guard(c)
	s.deadliner.OnDeadline(c)
}

func (s *handlerSink) draining(c *Conn) {
	if s.drainer == nil {
		_ = c.Close() // or it is closing already
		return
	}
	defer s.guard(c)
	s.drainer.OnDrain(c)
}

func (s *handlerSink) closed(c *Conn, err error) {
	s.server.remove(c)
	defer func() {
		if recovered := recover(); recovered != nil {
			s.panicked(c, recovered)
		}
		c.in.drop()
	}()
	s.handler.OnClose(c, err)
}

// tick calls OnTick; a panic ends the ticking.
func (s *handlerSink) tick(loop int) (next time.Duration) {
	defer func() {
		if recovered := recover(); recovered != nil {
			s.panicked(nil, recovered)
		}
	}()
	return s.handler.OnTick(loop)
}

func (s *handlerSink) guard(c *Conn) {
	if recovered := recover(); recovered != nil {
		s.panicked(c, recovered)
	}
}

func (s *handlerSink) panicked(c *Conn, recovered any) { reportPanic(s.config, c, recovered) }

// reportExit logs that a handler has ended its goroutine, and ends the connection, if it was for one.
func reportExit(config *config, c *Conn) {
	if c == nil {
		config.logger.Error("quoit: a handler called runtime.Goexit; the loop goes on")
		return
	}
	c.reports().logger.Error("quoit: a handler called runtime.Goexit; "+endOf(c)+", and the loop goes on", "peer", fmt.Sprint(c.RemoteAddr()))
}

// endOf ends the connection of a handler that has panicked, or tells why not.
func endOf(c *Conn) string {
	if c.panicked() {
		return "its connection is ended"
	}
	return "its connection was detached, and goes on"
}

// reportPanic logs a panic and ends its connection, or lets it go on where the configuration says so.
func reportPanic(config *config, c *Conn, recovered any) {
	if config.crash {
		panic(recovered)
	}
	peer, what := "none", "its connection is ended"
	if c != nil {
		peer, what = fmt.Sprint(c.RemoteAddr()), endOf(c)
	}
	config.logger.Error("quoit: a handler panicked; "+what,
		"panic", fmt.Sprint(recovered), "peer", peer, "stack", string(debug.Stack()))
}
