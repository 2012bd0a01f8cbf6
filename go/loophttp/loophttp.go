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

// RequestLimit sets the most bytes, head and body, of a request that is served on the loop. More than
// quoit.WithInboundLimit, whose default is 64 KiB, is an error of quoit.Start. Default: 32 KiB.
func RequestLimit(bytes int) Option { return func(h *Handler) { h.limit = bytes } }

// WithServer sets the http.Server for connections that leave the loops: its limits, timeouts, logger and so on. Its
// Handler is set by New, its ConnState called after one of New's, and its BaseContext once. Default: one without limits of time.
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
	if base := h.server.BaseContext; base != nil {
		// Called once, as by net/http: for the connections on the loops and for those that leave them.
		once := sync.OnceValue(func() context.Context { return base(h.over) })
		h.server.BaseContext = func(net.Listener) context.Context { return once() }
	}
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

// Gathers implements quoit.Gatherer.
func (h *Handler) Gathers() int { return h.limit }

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
	h.move(c)
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
		if verdict == frame.More && (whole > 0 || len(view) < h.heads) {
			known.requests.Need = whole
			return
		}
		if verdict != frame.Whole || !h.serve(c, known, view[:whole]) {
			known.requests.Need = -1
			h.move(c)
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
func (h *Handler) Close() error {
	err := h.server.Close()
	h.over.abandon()
	return err
}

// move hands the connection to the http.Server.
func (h *Handler) move(c *quoit.Conn) {
	if n := h.detach(c); n != nil {
		h.over.take(n)
	}
}

// detach takes the connection off its loop; nil if it has closed meanwhile.
func (h *Handler) detach(c *quoit.Conn) *quoit.NetConn {
	known := c.Context().(*state)
	draining := known.draining
	known.times.Forget(c)
	n, err := c.Detach()
	if err != nil {
		return nil
	}
	h.moved.Add(n)
	if draining {
		h.moved.Drain(n)
	}
	h.serving.Do(func() { go h.server.Serve(h.over) })
	return n
}

// moveAfter hands the connection to the http.Server with its next request, after what is left of a response.
func (h *Handler) moveAfter(c *quoit.Conn, rest []byte, closes bool) {
	n := h.detach(c)
	if n == nil {
		return
	}
	h.over.add(n)
	go func() {
		goesOn := h.resume(n, rest, closes)
		h.over.remove(n)
		if goesOn {
			h.over.take(n)
		} else {
			h.endMoved(n)
		}
	}()
}

// resume writes what is left of a response, and unless the connection closes then, waits for the next request as net/http does
// between two: its server takes one to be under way as soon as it has a connection. It returns whether there is one.
func (h *Handler) resume(n *quoit.NetConn, rest []byte, closes bool) bool {
	err := limits.WriteWithin(n, h.times.Write, func() error {
		_, err := n.Write(rest)
		return err
	})
	if err != nil || closes || !h.over.waits(n) {
		return false
	}
	if h.times.Idle > 0 {
		_ = n.SetReadDeadline(time.Now().Add(h.times.Idle)) // fails where waiting fails, too
	}
	h.moved.Idle(n)
	return n.WaitRead() == nil && n.SetReadDeadline(time.Time{}) == nil
}

// endMoved closes a connection that has moved and that nobody serves: it is over, or the http.Server has ended.
func (h *Handler) endMoved(n *quoit.NetConn) {
	h.moved.Remove(n)
	_ = n.Close() // the peer may have gone
}
