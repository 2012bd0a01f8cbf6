// Package fasthttp runs a fasthttp.RequestHandler on quoit's event loops, without a goroutine per connection.
//
//	server, err := quoit.Start(":8080", fasthttp.New(handler))
//
// It is for handlers that do not block: while one runs, no other connection of its loop is served. A request is read
// by fasthttp's own parser once it is completely there, and all responses of a turn leave together. Whatever else a
// connection brings (a chunked or large body, Expect, an upgrade, HTTP/1.0, anything malformed) moves it, with the bytes
// already read, to a goroutine in which a fasthttp.Server serves it over a net.Conn of quoit. Blocking chooses more
// requests for that. A response with a body stream moves its connection too, once the handler has returned.
//
// Shutdown of the quoit.Server waits for requests that are under way, wherever they are served, and closes each connection
// behind its response, as fasthttp's own server does; a hijacked one is closed at once.
//
// What only fasthttp's server can set is not there on the loop: RequestCtx.Time is zero, and ConnID, ConnTime and
// ConnRequestNum are those of one turn.
//
// RequestCtx.Hijack works for requests that are served on a goroutine, as upgrades are. On the loop it closes the
// connection behind the responses before it, with a logged error; choose such requests by Blocking.
package fasthttp

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"log"
	"net"
	"os"
	"sync"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/frame"
	"github.com/quoit-io/quoit/go/internal/limits"
	"github.com/quoit-io/quoit/go/internal/moved"
	"github.com/quoit-io/quoit/go/internal/turns"
	"github.com/valyala/fasthttp"
)

// Option changes one default of New.
type Option func(*Handler)

// Blocking says which requests are not for the loop: the connection of one for which it returns true moves to a
// goroutine, and stays there. It is called on the loop.
func Blocking(blocks func(r *fasthttp.Request) bool) Option {
	return func(h *Handler) { h.blocks = blocks }
}

// RequestLimit sets the most bytes, head and body, of a request that is served on the loop. More than
// quoit.WithInboundLimit, whose default is 64 KiB, is an error of quoit.Start. Default: 32 KiB.
func RequestLimit(bytes int) Option { return func(h *Handler) { h.limit = bytes } }

// WithServer sets the fasthttp.Server whose name, logger and limits of requests are used, and which serves connections that
// leave the loops, with its timeouts; docs/go.md lists what its options mean on the loop. Its Handler is set by New, and its
// ConnState called after one of New's.
func WithServer(server *fasthttp.Server) Option { return func(h *Handler) { h.server = server } }

// Handler is a quoit.Handler.
type Handler struct {
	quoit.BaseHandler
	handler fasthttp.RequestHandler
	server  *fasthttp.Server
	blocks  func(r *fasthttp.Request) bool
	limit   int // of a request
	body    int // of its body
	head    int // of its head
	name    string
	times   limits.Limits
	moved   moved.Connections
}

// New makes a quoit.Handler of a fasthttp one.
func New(handler fasthttp.RequestHandler, options ...Option) *Handler {
	h := &Handler{handler: handler, limit: 32 << 10}
	for _, option := range options {
		option(h)
	}
	if h.server == nil {
		h.server = &fasthttp.Server{}
	}
	h.server.Handler = h.serveMoved
	h.server.ConnState = h.watch(h.server.ConnState)
	h.body = cmp.Or(max(h.server.MaxRequestBodySize, 0), fasthttp.DefaultMaxRequestBodySize)
	h.head = cmp.Or(max(h.server.ReadBufferSize, 0), 4096)
	h.times = limitsOf(h.server)
	h.name = h.server.Name
	if h.name == "" && !h.server.NoDefaultServerHeader {
		h.name = "fasthttp"
	}
	return h
}

// watch is a hook of the server for the states of its connections, before next, which may be nil.
func (h *Handler) watch(next func(net.Conn, fasthttp.ConnState)) func(net.Conn, fasthttp.ConnState) {
	return func(n net.Conn, state fasthttp.ConnState) {
		switch state {
		case fasthttp.StateActive:
			h.moved.Active(n)
		case fasthttp.StateIdle:
			h.moved.Idle(n)
		}
		if next != nil {
			next(n, state)
		}
	}
}

// serveMoved is the handler of the server. It has the last response of a connection that is to end say so: else fasthttp would keep
// that back while more requests have come behind it.
func (h *Handler) serveMoved(ctx *fasthttp.RequestCtx) {
	h.handler(ctx)
	if ctx.Hijacked() || !h.moved.Draining(ctx.Conn()) {
		return
	}
	response := ctx.LastTimeoutErrorResponse()
	if response == nil {
		response = &ctx.Response
	}
	response.SetConnectionClose()
}

// peer is the connection of a RequestCtx on the loop. A handler may ask it for its addresses, and close it.
type peer struct {
	conn *quoit.Conn

	requests turns.Requests
	times    *limits.Times
	served   int  // requests, if the server limits them
	kept     bool // a request was read before
	draining bool // it closes behind the request of which a part has come
}

var _ net.Conn = (*peer)(nil)

func (p *peer) LocalAddr() net.Addr  { return p.conn.LocalAddr() }
func (p *peer) RemoteAddr() net.Addr { return p.conn.RemoteAddr() }
func (p *peer) Close() error         { return p.conn.Close() }

// What would wait cannot, and the deadlines are the loop's.

func (p *peer) Read([]byte) (int, error)         { return 0, quoit.ErrOnLoop }
func (p *peer) Write([]byte) (int, error)        { return 0, quoit.ErrOnLoop }
func (p *peer) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (p *peer) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (p *peer) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// work is what serving the requests takes that one connection has brought in a turn.
type work struct {
	source bytes.Reader
	reader *bufio.Reader
	out    output
	writer *bufio.Writer // to out
	ctx    *fasthttp.RequestCtx

	stream *fasthttp.Response // is still to be written, when the connection has moved
	ending bool               // the connection closes after it
}

var works = sync.Pool{New: func() any {
	w := &work{reader: bufio.NewReaderSize(nil, 4<<10), ctx: new(fasthttp.RequestCtx)}
	w.out.gathered = make([]byte, 0, 4<<10)
	w.writer = bufio.NewWriterSize(&w.out, 512)
	return w
}}

// output gathers what is for a connection on its loop, and keeps what that has no room for.
type output struct {
	conn     *quoit.Conn
	gathered []byte // is given to the connection when it is full
	rest     []byte
}

// Write implements io.Writer. It does not fail: of a connection that has ended nothing is left to write to.
func (o *output) Write(p []byte) (int, error) {
	if len(p) > cap(o.gathered)-len(o.gathered) {
		o.flush()
		if len(p) > cap(o.gathered) {
			o.give(p)
			return len(p), nil
		}
	}
	o.gathered = append(o.gathered, p...)
	return len(p), nil
}

// respond is what Response.Write does for one with a body, but that fasthttp makes the head where it is gathered.
func (o *output) respond(response *fasthttp.Response, body []byte) {
	response.Header.SetContentLength(len(body))
	room := cap(o.gathered) - len(o.gathered)
	head := response.Header.AppendBytes(o.gathered[len(o.gathered):])
	if len(head) <= room {
		o.gathered = o.gathered[:len(o.gathered)+len(head)]
	} else {
		_, _ = o.Write(head) // it grew elsewhere; and Write takes everything
	}
	_, _ = o.Write(body)
}

// flush gives the connection what is gathered.
func (o *output) flush() {
	if len(o.gathered) > 0 {
		o.give(o.gathered)
		o.gathered = o.gathered[:0]
	}
}

func (o *output) give(p []byte) {
	if len(o.rest) == 0 {
		_, err := o.conn.Write(p)
		if err == nil {
			return
		}
		if !errors.Is(err, quoit.ErrFull) && !errors.Is(err, quoit.ErrTooLarge) {
			_ = o.conn.Abort() // or it has ended
			return
		}
	}
	o.rest = append(o.rest, p...)
}

// Gathers implements quoit.Gatherer.
func (h *Handler) Gathers() int { return h.limit }

// OnOpen implements quoit.Handler.
func (h *Handler) OnOpen(c *quoit.Conn) {
	p := &peer{conn: c, times: h.times.Times()}
	c.SetContext(p)
	first := h.times
	first.Idle = h.server.ReadTimeout // there is none of a keep-alive connection yet
	p.times.Watch(c, &first, 0, false)
}

// OnDrain implements quoit.Drainer: a connection between two requests has nothing to wait for.
func (h *Handler) OnDrain(c *quoit.Conn) {
	if c.Buffered() > 0 {
		c.Context().(*peer).draining = true
		return
	}
	_ = c.Close() // or it is closing already
}

// OnDrainDetached implements quoit.DetachedDrainer.
func (h *Handler) OnDrainDetached(n *quoit.NetConn) { h.moved.Drain(n) }

// after is what becomes of a connection after one of its requests.
type after int

const (
	goesOn after = iota
	waits        // for the rest of the request
	waitsForTurn
	moves   // to a goroutine, with the request, which was not served
	streams // its response, on a goroutine
	closes
	breaks // closes, with no response: there is none, and the context may still be used
)

var endOfHead = []byte("\r\n\r\n")

// OnData implements quoit.Handler: it serves the requests that are completely there, and many of them over several turns.
func (h *Handler) OnData(c *quoit.Conn) {
	from := c.Context().(*peer)
	if from.requests.Wait(c) {
		return
	}
	h.serveTurn(c, from)
}

// serveTurn serves what is there, and notes until when more must come.
func (h *Handler) serveTurn(c *quoit.Conn, from *peer) {
	h.serveThere(c, from)
	h.watchTime(c, from)
}

// OnEndOfStream implements quoit.HalfCloser: what came before the end is served. What fasthttp makes of a part of a request,
// it decides itself.
func (h *Handler) OnEndOfStream(c *quoit.Conn) {
	c.Context().(*peer).requests.End(c, h.moveWhole)
}

// moveWhole moves a connection with all that has come of it.
func (h *Handler) moveWhole(c *quoit.Conn) { h.move(c, nil) }

// serveThere serves a turn's share of the requests that are completely there.
func (h *Handler) serveThere(c *quoit.Conn, from *peer) {
	view, _ := c.Peek(c.Buffered())
	w := works.Get().(*work)
	w.begin(c, view)
	w.ctx.Init2(from, h.logger(), false)
	from.requests.Need = 0
	// Where bytes end as a head does, as requests without a body do, none of the heads needs to be searched for its end.
	wholeHeads := bytes.HasSuffix(view, endOfHead)
	used, then, returned := 0, goesOn, false
	defer func() {
		if !returned {
			// A handler has panicked, or has called runtime.Goexit. The others have returned, and their responses leave.
			c.Discard(used)
			h.finish(c, w, breaks)
		}
	}()
	for served := 0; then == goesOn && used < len(view) && len(w.out.rest) == 0; served++ {
		if served == turns.Share {
			then = waitsForTurn
			break
		}
		left := view[used:]
		from.times.Begun()
		if !(wholeHeads && len(left) >= len(endOfHead)) && !bytes.Contains(left[:min(len(left), h.limit)], endOfHead) {
			// fasthttp's parser has no verdict on a part.
			then = waits
			if verdict, _ := frame.Scan(left, h.limit); verdict != frame.More || len(left) >= h.head {
				then = moves
			}
			break
		}
		var whole int
		if then, whole = h.serve(w, from, len(left)); then != moves && then != waits {
			used += whole
		}
	}
	returned = true
	c.Discard(used)
	switch h.finish(c, w, then) {
	case waitsForTurn:
		from.requests.Later(c, func(c *quoit.Conn) { h.serveTurn(c, from) }, h.moveWhole)
	case moves, streams:
		from.requests.Need = -1
	}
}

// serve serves one request whose head is there, of left bytes; whole is its length.
func (h *Handler) serve(w *work, from *peer, left int) (then after, whole int) {
	ctx := w.ctx
	header := &ctx.Request.Header
	if h.server.DisableHeaderNamesNormalizing {
		header.DisableNormalizing()
		ctx.Response.Header.DisableNormalizing()
	}
	ctx.Response.Header.SetNoDefaultContentType(h.server.NoDefaultContentType)
	if err := header.Read(w.reader); err != nil {
		return moves, 0
	}
	body := header.ContentLength() // or negative: -1 is chunked, -2 is none
	whole = left - w.reader.Buffered() - w.source.Len()
	// Whether a body is too long is known before it is added to anything.
	if whole > h.head || body > min(h.limit, h.body) || !h.forLoop(header, body) {
		return moves, 0
	}
	whole += max(body, 0)
	if body == -1 || whole > h.limit || !header.IsHTTP11() || header.IsConnect() || frame.AsksForMore(header.RawHeaders()) {
		return moves, 0
	}
	// A target or a host that fasthttp refuses leaves no path. Its server, which is told why, responds to that.
	if len(ctx.Request.URI().PathOriginal()) == 0 {
		return moves, 0
	}
	if whole > left {
		from.requests.Need = whole
		return waits, 0
	}
	if err := ctx.Request.ContinueReadBody(w.reader, 0, !h.server.DisablePreParseMultipartForm); err != nil || h.blocks != nil && h.blocks(&ctx.Request) {
		return moves, 0
	}
	from.times.Read(&h.times)
	from.kept = true
	head := header.IsHead()
	ending := header.ConnectionClose() || from.draining || h.server.DisableKeepalive
	if most := h.server.MaxRequestsPerConn; most > 0 {
		from.served++
		ending = ending || from.served >= most
	}
	h.call(ctx)
	if ctx.Hijacked() {
		h.logger().Printf("quoit: a handler hijacked a connection on the loop, which is closed; serve %s by Blocking", ctx.Path())
		forget(ctx)
		return breaks, whole
	}
	response := &ctx.Response
	if late := ctx.LastTimeoutErrorResponse(); late != nil {
		// The handler's goroutines may use the context for ever, so it is not used again.
		response = late
		w.ctx = new(fasthttp.RequestCtx)
		w.ctx.Init2(from, h.logger(), false)
	}
	ending = ending || response.Header.ConnectionClose()
	if ending {
		response.Header.SetConnectionClose()
	}
	if h.name != "" && len(response.Header.Server()) == 0 {
		response.Header.SetServer(h.name)
	}
	response.SkipBody = response.SkipBody || head
	if response.IsBodyStream() {
		w.stream, w.ending = response, ending
		return streams, whole
	}
	w.respond(response)
	if ending {
		return closes, whole
	}
	w.reset()
	return goesOn, whole
}

// call runs the handler. If that does not return, nothing else closes what its request holds.
func (h *Handler) call(ctx *fasthttp.RequestCtx) {
	returned := false
	defer func() {
		if !returned {
			forget(ctx)
		}
	}()
	h.handler(ctx)
	returned = true
}

// forget closes what a request holds, the stream of its response and its values, unless it has timed out: then others still use it.
func forget(ctx *fasthttp.RequestCtx) {
	if ctx.LastTimeoutErrorResponse() == nil {
		ctx.Request.Reset()
		ctx.Response.Reset()
	}
}

// forLoop is whether the server's options leave a request to the loop: it cannot do all that fasthttp's server does.
func (h *Handler) forLoop(header *fasthttp.RequestHeader, body int) bool {
	s := h.server
	switch {
	case s.NoDefaultDate, s.HeaderReceived != nil, s.FormValueFunc != nil:
		return false
	case s.StreamRequestBody && body >= 0:
		return false
	case s.GetOnly:
		return header.IsGet() || header.IsHead()
	}
	return true
}

// finish sends what was written, and does what was decided. It returns what became of the connection.
func (h *Handler) finish(c *quoit.Conn, w *work, then after) after {
	w.out.flush()
	rest, broken := w.out.rest, then == breaks
	ending := then == closes || broken
	switch {
	case then == streams:
		moved := h.move(c, func(n net.Conn) (bool, error) {
			writer := bufio.NewWriter(n)
			_, first := writer.Write(rest)
			err := errors.Join(first, w.stream.Write(writer), writer.Flush())
			w.reset()
			return !w.ending, err
		})
		if !moved {
			w.reset() // there is nobody left to hear of it
		}
		return then // and it is the goroutine's
	case len(rest) > 0:
		h.move(c, func(n net.Conn) (bool, error) {
			_, err := n.Write(rest)
			return !ending, err
		})
		then = moves
	case then == moves:
		h.move(c, nil)
	case ending:
		_ = c.Close() // or the peer has gone
	}
	if broken {
		return then // a context cannot be told to forget a hijacker, and that of a request that has timed out is its handler's
	}
	w.reset()
	w.out.conn, w.out.rest = nil, nil
	works.Put(w)
	return then
}

// begin prepares for the requests that are in view.
func (w *work) begin(c *quoit.Conn, view []byte) {
	w.out.conn = c
	w.source.Reset(view)
	w.reader.Reset(&w.source)
}

// respond writes a response.
func (w *work) respond(response *fasthttp.Response) {
	status := response.StatusCode()
	if !response.SkipBody && status >= 200 && status != fasthttp.StatusNoContent && status != fasthttp.StatusNotModified {
		w.out.respond(response, response.Body())
		return
	}
	// The output takes everything.
	_ = response.Write(w.writer)
	_ = w.writer.Flush()
}

// reset forgets a request and its response.
func (w *work) reset() {
	w.ctx.Request.Reset()
	w.ctx.Response.Reset()
}

// move serves the connection on a goroutine from now on, after what first writes, which returns whether it goes on. It returns false,
// and first is not called, if the connection has closed meanwhile.
func (h *Handler) move(c *quoit.Conn, first func(n net.Conn) (goesOn bool, err error)) bool {
	return h.moveAs(c, first, func(n *quoit.NetConn) net.Conn { return n })
}

// moveAs moves a connection, which fasthttp is given as what that returns.
func (h *Handler) moveAs(c *quoit.Conn, first func(n net.Conn) (goesOn bool, err error), as func(n *quoit.NetConn) net.Conn) bool {
	from := c.Context().(*peer)
	draining := from.draining
	from.times.Forget(c)
	n, err := c.Detach()
	if err != nil {
		return false
	}
	h.moved.Add(n)
	if draining {
		h.moved.Drain(n)
	}
	go func() {
		// It is closed, was hijacked, or fasthttp has refused it without a word to its hook.
		defer h.moved.Remove(n)
		if first != nil && !h.resume(n, first) {
			_ = n.Close() // the peer may have gone
			return
		}
		if err := h.server.ServeConn(as(n)); err != nil && h.server.LogAllErrors {
			h.logger().Printf("quoit: serving %v: %v", n.RemoteAddr(), err)
		}
	}()
	return true
}

// resume has first write what is left of a response, and waits for the next request as fasthttp does between two: when it
// serves a connection, it takes a request to be under way from the start, so that a drain would wait for that. It returns
// whether there is one.
func (h *Handler) resume(n *quoit.NetConn, first func(n net.Conn) (goesOn bool, err error)) bool {
	goesOn := false
	err := limits.WriteWithin(n, h.times.Write, func() (err error) {
		goesOn, err = first(n)
		return err
	})
	if err != nil || !goesOn {
		return false
	}
	if h.times.Idle > 0 {
		_ = n.SetReadDeadline(time.Now().Add(h.times.Idle)) // fails where waiting fails, too
	}
	h.moved.Idle(n)
	if n.WaitRead() != nil {
		return false
	}
	return n.SetReadDeadline(time.Time{}) == nil
}

func (h *Handler) logger() fasthttp.Logger {
	if h.server.Logger != nil {
		return h.server.Logger
	}
	return defaultLogger
}

// defaultLogger is for servers without a logger, as fasthttp's own is.
var defaultLogger fasthttp.Logger = log.New(os.Stderr, "", log.LstdFlags)
