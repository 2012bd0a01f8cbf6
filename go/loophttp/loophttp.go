// Package loophttp runs a net/http Handler on quoit's event loops, without a goroutine per connection.
//
//	server, err := quoit.Start(":8080", loophttp.New(mux))
//
// It is for handlers that do not block: while one runs, no other connection of its loop is served. A request is read
// by net/http's own parser once it is completely there, and all responses of a turn leave together. Whatever else a
// connection brings (a chunked or large body, Expect, an upgrade, HTTP/1.0 or 2, anything malformed) moves it, with
// the bytes already read, to an http.Server over a net.Conn of quoit, where everything works as usual and may block.
// Blocking chooses more requests for that.
//
// Server.Shutdown waits for requests that are under way, wherever they are served, and closes each connection behind its
// response, as http.Server.Shutdown does; a hijacked one is closed at once.
//
// Responses, and the limits of WithServer, are those of net/http; docs/go.md lists what differs.
//
// On the loop a response is buffered until the handler returns: Flush returns http.ErrNotSupported by way of
// http.ResponseController, and Hijack gives a connection whose calls return quoit.ErrOnLoop rather than wait until the
// handler has returned; on quoit.EngineStd they wait, and hang the loop.
package loophttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/frame"
	"github.com/quoit-io/quoit/go/internal/limits"
	"github.com/quoit-io/quoit/go/internal/moved"
	"github.com/quoit-io/quoit/go/internal/turns"
)

// Option changes one default of New.
type Option func(*Handler)

// Blocking says which requests are not for the loop: the connection of one for which it returns true moves to a
// goroutine, and stays there. It is called on the loop, with a body that is completely there.
func Blocking(blocks func(r *http.Request) bool) Option {
	return func(h *Handler) { h.blocks = blocks }
}

// RequestLimit sets the most bytes, head and body, of a request that is served on the loop. It must be below
// quoit.WithInboundLimit, whose default is 64 KiB. Default: 32 KiB.
func RequestLimit(bytes int) Option { return func(h *Handler) { h.limit = bytes } }

// WithServer sets the http.Server for connections that leave the loops: its limits, timeouts, logger and so on. Its
// Handler is set by New, and its ConnState called after one of New's. Default: one without limits of time.
func WithServer(server *http.Server) Option { return func(h *Handler) { h.server = server } }

// Handler is a quoit.Handler.
type Handler struct {
	quoit.BaseHandler
	handler http.Handler
	server  *http.Server
	blocks  func(r *http.Request) bool
	limit   int
	heads   int // bytes of the longest head
	times   limits.Limits
	serving sync.Once
	over    *handedOver
	moved   moved.Connections
}

// headSlack is what net/http lets a head be longer than MaxHeaderBytes.
const headSlack = 4096

// New makes a quoit.Handler of a net/http one; nil is http.DefaultServeMux.
func New(handler http.Handler, options ...Option) *Handler {
	h := &Handler{handler: handler, limit: 32 << 10}
	h.over = newHandedOver(h.endMoved)
	for _, option := range options {
		option(h)
	}
	if h.server == nil {
		h.server = &http.Server{}
	}
	if h.handler == nil {
		h.handler = http.DefaultServeMux
	}
	h.server.Handler = h.handler
	h.heads = h.server.MaxHeaderBytes
	if h.heads <= 0 {
		h.heads = http.DefaultMaxHeaderBytes
	}
	h.heads += headSlack
	h.times = limitsOf(h.server)
	h.server.ConnState = h.watch(h.server.ConnState)
	return h
}

// watch is a hook of the http.Server for the states of its connections, before next, which may be nil.
func (h *Handler) watch(next func(net.Conn, http.ConnState)) func(net.Conn, http.ConnState) {
	return func(connection net.Conn, state http.ConnState) {
		switch state {
		case http.StateActive:
			h.moved.Active(connection)
		case http.StateIdle:
			h.moved.Idle(connection)
		case http.StateHijacked, http.StateClosed:
			h.moved.Remove(connection)
		}
		if next != nil {
			next(connection, state)
		}
	}
}

// state is what a connection has between its requests; it is kept with the connection.
type state struct {
	remote  string
	context context.Context // of all its requests; made for the first
	posted  bool            // the request before was a POST
	waits   bool            // for what net/http takes for the beginning of another request

	draining bool // it closes behind the request of which a part has come
	requests turns.Requests
	times    *limits.Times
}

// work is what serving one request takes. A loop needs one; several loops share the pool.
type work struct {
	source  source
	reader  *bufio.Reader
	writer  responseWriter
	content bytes.Buffer

	request *http.Request // under way, or nil
	body    io.Closer     // of it; handlers may give it another one
}

// source is what a request is read from: its bytes, and behind them the connection, once that was hijacked.
type source struct {
	bytes  bytes.Reader
	behind io.Reader
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.bytes.Len() == 0 && s.behind != nil {
		return s.behind.Read(p)
	}
	return s.bytes.Read(p)
}

var works = sync.Pool{New: func() any {
	return &work{reader: bufio.NewReaderSize(nil, 4<<10), writer: responseWriter{header: make(http.Header)}}
}}

// read reads a request, of which forget must follow.
func (w *work) read(raw []byte) (*http.Request, error) {
	w.source.bytes.Reset(raw)
	w.reader.Reset(&w.source)
	request, err := http.ReadRequest(w.reader)
	if err == nil {
		w.request, w.body = request, request.Body
	}
	return request, err
}

// forget does what net/http does behind a request: no goroutine reads its body any more, which is in memory that others get, and the
// files of its form are removed.
func (w *work) forget() {
	if w.request == nil {
		return
	}
	_ = w.body.Close() // of what is in memory: there is nothing that can fail
	if form := w.request.MultipartForm; form != nil {
		_ = form.RemoveAll() // or the handler has
	}
	w.request, w.body = nil, nil
}

// done gives the work back. That of a hijacked connection is its handler's for ever: it goes on reading by the same reader, it may keep
// the files, and its response says that there is none any more.
func (w *work) done() {
	if !w.writer.hijacked {
		w.forget()
		works.Put(w)
	}
}

// OnOpen implements quoit.Handler.
func (h *Handler) OnOpen(c *quoit.Conn) {
	known := &state{remote: c.RemoteAddr().String(), times: h.times.Times()}
	c.SetContext(known)
	known.times.Begun() // the time of a first request's head begins with the connection
	h.watchTime(c, known)
}

// OnData implements quoit.Handler: it serves the requests that are completely there, and many of them over several turns.
func (h *Handler) OnData(c *quoit.Conn) {
	known := c.Context().(*state)
	if known.requests.Wait(c) {
		return
	}
	h.serveTurn(c, known)
}

// serveTurn serves what is there, and notes until when more must come.
func (h *Handler) serveTurn(c *quoit.Conn, known *state) {
	h.serveThere(c, known)
	h.watchTime(c, known)
}

// OnEndOfStream implements quoit.HalfCloser: what came before the end is served. What net/http makes of a part of a request,
// it decides itself.
func (h *Handler) OnEndOfStream(c *quoit.Conn) {
	c.Context().(*state).requests.End(c, h.moveWhole)
}

// moveWhole moves a connection that has ended with all that has come of it, unless that is no request.
func (h *Handler) moveWhole(c *quoit.Conn) {
	if c.Context().(*state).idle(c) {
		_ = c.Close() // or it is closing already
		return
	}
	h.move(c, nil)
}

// serveThere serves a turn's share of the requests that are completely there.
func (h *Handler) serveThere(c *quoit.Conn, known *state) {
	known.requests.Need = 0
	for served := 0; c.Buffered() > 0 && !c.IsClosed(); served++ {
		if served == turns.Share {
			known.requests.Later(c, func(c *quoit.Conn) { h.serveTurn(c, known) }, h.moveWhole)
			return
		}
		view, _ := c.Peek(c.Buffered())
		if known.waits {
			if len(view) < beginning {
				known.requests.Need = beginning
				return
			}
			known.waits = false
			if excess := lineEnds(view); known.posted && excess > 0 {
				c.Discard(excess)
				continue
			}
		}
		known.times.Begun()
		verdict, whole := frame.Scan(view, h.limit)
		if verdict == frame.More {
			known.requests.Need = whole
			return
		}
		if verdict == frame.Move || !h.serve(c, known, view[:whole]) {
			known.requests.Need = -1
			h.move(c, nil)
			return
		}
		if known.requests.Need < 0 {
			return // it has left the loop while it was served
		}
	}
}

// beginning is how many bytes net/http waits for after a request: fewer are none that has begun.
const beginning = 4

// idle is whether another request has not begun, though some bytes may have come.
func (s *state) idle(c *quoit.Conn) bool {
	return c.Buffered() == 0 || s.waits && c.Buffered() < beginning
}

// lineEnds is how many bytes of the view are line ends that clients send behind the body of a POST, though they do not
// count them. As many as net/http are ignored (RFC 9112, 2.2).
func lineEnds(view []byte) int {
	count := 0
	for count < min(len(view), beginning) && (view[count] == '\r' || view[count] == '\n') {
		count++
	}
	return count
}

// OnDrain implements quoit.Drainer: a connection between two requests has nothing to wait for.
func (h *Handler) OnDrain(c *quoit.Conn) {
	if known := c.Context().(*state); !known.idle(c) {
		known.draining = true
		return
	}
	_ = c.Close() // or it is closing already
}

// OnDrainDetached implements quoit.DetachedDrainer.
func (h *Handler) OnDrainDetached(n *quoit.NetConn) { h.moved.Drain(n) }

// serve serves one request; false, and nothing is consumed, if the connection must move first.
func (h *Handler) serve(c *quoit.Conn, known *state, raw []byte) bool {
	w := works.Get().(*work)
	defer w.done()
	request, err := w.read(raw)
	if err != nil || len(raw)-w.source.bytes.Len()-w.reader.Buffered() > h.heads || h.blocks != nil && h.blocks(request) {
		return false
	}
	if h.blocks != nil && request.Body != http.NoBody {
		// It may have been read.
		w.forget()
		if request, err = w.read(raw); err != nil {
			return false
		}
	}
	known.times.Read(&h.times)
	request.RemoteAddr = known.remote
	if known.context == nil {
		known.context = h.contextOf(c)
	}
	// As with net/http it is done when the handler has returned.
	within := &requestContext{Context: known.context}
	defer within.ends()
	request = request.WithContext(within)
	w.request = request
	w.content.Reset()
	response := &w.writer
	response.begin(h, c, known, w, len(raw))
	answered := h.call(c, response, request)
	if response.hijacked {
		return true
	}
	w.forget() // before the memory of its body goes, with the connection
	c.Discard(len(raw))
	if !answered {
		_ = c.Close() // or it has ended
		return true
	}
	known.posted, known.waits = request.Method == http.MethodPost, true
	closes := response.finish(known.draining)
	_, err = c.Write(response.out)
	switch {
	case errors.Is(err, quoit.ErrFull), errors.Is(err, quoit.ErrTooLarge):
		// The rest waits for the peer, which is a goroutine's business.
		known.requests.Need = -1
		h.moveAfter(c, append([]byte(nil), response.out...), closes)
	case err != nil:
		_ = c.Abort() // or it has ended
	case closes:
		_ = c.Close() // or the peer has gone
	}
	return true
}

// contextOf is the context of a connection's requests, with what net/http has in it.
func (h *Handler) contextOf(c *quoit.Conn) context.Context {
	base := context.Background()
	if h.server.BaseContext != nil {
		if base = h.server.BaseContext(h.over); base == nil {
			panic("loophttp: BaseContext returned no context")
		}
	}
	base = context.WithValue(base, http.ServerContextKey, h.server)
	return context.WithValue(base, http.LocalAddrContextKey, c.LocalAddr())
}

// call runs the handler; false if it has panicked with http.ErrAbortHandler, which is no fault. Other panics are the
// loop's to report. What was answered before either still leaves.
func (h *Handler) call(c *quoit.Conn, w *responseWriter, r *http.Request) (done bool) {
	defer func() {
		if done {
			return
		}
		recovered := recover()
		if recovered == http.ErrAbortHandler {
			return
		}
		if !w.hijacked {
			c.Discard(w.raw)
			_ = c.Close() // or it has ended
		}
		if recovered != nil {
			panic(recovered)
		}
		// It has called runtime.Goexit, after which only deferred calls run.
	}()
	if r.Method == http.MethodOptions && r.RequestURI == "*" && !h.server.DisableGeneralOptionsHandler {
		w.Header().Set("Content-Length", "0") // of the server as a whole (RFC 9110, 9.3.7)
		return true
	}
	h.handler.ServeHTTP(w, r)
	return true
}

func (h *Handler) logf(format string, values ...any) {
	if h.server.ErrorLog != nil {
		h.server.ErrorLog.Printf(format, values...)
	} else {
		log.Printf(format, values...)
	}
}

// Close closes the connections that have left the loops, and their http.Server. Shut the quoit.Server down first.
func (h *Handler) Close() error { return h.server.Close() }

// move hands the connection to the http.Server, after what is still to be written.
func (h *Handler) move(c *quoit.Conn, first []byte) {
	known := c.Context().(*state)
	draining := known.draining
	known.times.Forget(c)
	n, err := c.Detach()
	if err != nil {
		return // it has closed meanwhile
	}
	h.moved.Add(n)
	if draining {
		h.moved.Drain(n)
	}
	h.serving.Do(func() { go h.server.Serve(h.over) })
	h.over.take(n, first, h.times.Write, func() { h.moved.Idle(n) })
}

func (h *Handler) moveAfter(c *quoit.Conn, first []byte, closes bool) {
	if !closes {
		h.move(c, first)
		return
	}
	c.Context().(*state).times.Forget(c)
	n, err := c.Detach()
	if err != nil {
		return
	}
	h.moved.Add(n)
	go func() {
		_ = writeWithin(n, first, h.times.Write) // the peer may have gone
		h.moved.Remove(n)
		_ = n.Close()
	}()
}

// endMoved closes a connection that has moved and that nobody serves, as the http.Server has ended: behind what was left from the
// loop. It does not wait.
func (h *Handler) endMoved(connection net.Conn) {
	go func() {
		if rest, left := connection.(*withRest); left {
			_ = rest.flush() // the peer may have gone
		}
		h.moved.Remove(connection)
		_ = connection.Close() // likewise
	}()
}

// handedOver is the listener of the http.Server: it accepts what the loops hand over.
type handedOver struct {
	left   func(connection net.Conn) // what becomes of those that it does not accept any more
	mu     sync.Mutex
	queue  []net.Conn
	over   bool // it accepts nothing any more
	ready  chan struct{}
	closed chan struct{}
}

func newHandedOver(left func(connection net.Conn)) *handedOver {
	return &handedOver{left: left, ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// writeWithin writes what was left from the loop, in no more than the time for a response, if that is limited.
func writeWithin(n *quoit.NetConn, rest []byte, limit time.Duration) error {
	return limits.WriteWithin(n, limit, func() error {
		_, err := n.Write(rest)
		return err
	})
}

// take queues a connection; it does not wait. What is first to be written is written within the limit, and written is
// called then.
func (l *handedOver) take(n *quoit.NetConn, first []byte, limit time.Duration, written func()) {
	connection := net.Conn(n)
	if len(first) > 0 {
		connection = &withRest{NetConn: n, rest: first, limit: limit, written: written}
	}
	l.mu.Lock()
	over := l.over
	if !over {
		l.queue = append(l.queue, connection)
	}
	l.mu.Unlock()
	if over {
		l.left(connection)
		return
	}
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// withRest writes what was left from the loop before anything is read or written.
type withRest struct {
	*quoit.NetConn
	once    sync.Once
	rest    []byte
	limit   time.Duration
	written func()
	err     error
}

func (w *withRest) flush() error {
	w.once.Do(func() {
		w.err = writeWithin(w.NetConn, w.rest, w.limit)
		w.rest = nil
		if w.err == nil {
			w.written()
		}
	})
	return w.err
}

func (w *withRest) Read(p []byte) (int, error) {
	if err := w.flush(); err != nil {
		return 0, err
	}
	return w.NetConn.Read(p)
}

func (w *withRest) Write(p []byte) (int, error) {
	if err := w.flush(); err != nil {
		return 0, err
	}
	return w.NetConn.Write(p)
}

func (w *withRest) ReadFrom(r io.Reader) (int64, error) {
	if err := w.flush(); err != nil {
		return 0, err
	}
	return w.NetConn.ReadFrom(r)
}

func (l *handedOver) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			connection := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			l.mu.Unlock()
			return connection, nil
		}
		l.mu.Unlock()
		select {
		case <-l.ready:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

func (l *handedOver) Close() error {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	if !l.over {
		l.over = true
		close(l.closed)
	}
	l.mu.Unlock()
	for _, connection := range queue {
		l.left(connection)
	}
	return nil
}

// Addr is that of no socket: connections come from loops.
func (l *handedOver) Addr() net.Addr { return &net.UnixAddr{Name: "quoit", Net: "loop"} }
