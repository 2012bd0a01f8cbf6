// Package fasthttp runs a fasthttp.RequestHandler on quoit's event loops, without a goroutine a connection.
//
//	server, err := quoit.Start(":8080", fasthttp.New(handler))
//
// It is for handlers that do not block: while one runs, no other connection of its loop is served. A request is read
// by fasthttp's own parser once it is completely there, and all responses of a turn leave together. Whatever else a
// connection brings (a chunked or large body, Expect, an upgrade, HTTP/1.0, anything malformed) moves it, with the bytes
// already read, to a goroutine in which a fasthttp.Server serves it over a net.Conn of quoit. Blocking chooses more
// requests for that. A response with a body stream moves its connection too, once the handler has returned.
//
// RequestCtx.Hijack works for requests that are served on a goroutine, as upgrades are. On the loop it closes the
// connection with a logged error; choose such requests by Blocking.
package fasthttp

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"sync"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/frame"
	"github.com/valyala/fasthttp"
)

// Option changes one default of New.
type Option func(*Handler)

// Blocking says which requests are not for the loop: the connection of one for which it answers true moves to a
// goroutine, and stays there. It is called on the loop.
func Blocking(blocks func(r *fasthttp.Request) bool) Option {
	return func(h *Handler) { h.blocks = blocks }
}

// RequestLimit sets the most bytes, head and body, of a request that is served on the loop. It must be below
// quoit.WithInboundLimit, whose default is 64 KiB. Default: 32 KiB.
func RequestLimit(bytes int) Option { return func(h *Handler) { h.limit = bytes } }

// WithServer sets the fasthttp.Server whose name and logger are used, and which serves connections that leave the
// loops, with its limits and timeouts. Its Handler is set by New.
func WithServer(server *fasthttp.Server) Option { return func(h *Handler) { h.server = server } }

// Handler is a quoit.Handler.
type Handler struct {
	quoit.BaseHandler
	handler fasthttp.RequestHandler
	server  *fasthttp.Server
	blocks  func(r *fasthttp.Request) bool
	limit   int
	name    string
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
	h.server.Handler = handler
	h.name = h.server.Name
	if h.name == "" && !h.server.NoDefaultServerHeader {
		h.name = "fasthttp"
	}
	return h
}

// peer is what a RequestCtx asks its connection on the loop: the addresses. Everything else would be I/O.
type peer struct {
	net.Conn
	conn *quoit.Conn
	need int // bytes of the request that is not complete; 0 if that is not known
}

func (p *peer) LocalAddr() net.Addr  { return p.conn.LocalAddr() }
func (p *peer) RemoteAddr() net.Addr { return p.conn.RemoteAddr() }

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
	w.writer = bufio.NewWriterSize(&w.out, 4<<10)
	return w
}}

// output writes to a connection on its loop, and keeps what that has no room for.
type output struct {
	conn *quoit.Conn
	rest []byte
}

// Write implements io.Writer. It does not fail: of a connection that has ended nothing is left to write to.
func (o *output) Write(p []byte) (int, error) {
	if len(o.rest) == 0 {
		_, err := o.conn.Write(p)
		if !errors.Is(err, quoit.ErrFull) && !errors.Is(err, quoit.ErrTooLarge) {
			return len(p), nil
		}
	}
	o.rest = append(o.rest, p...)
	return len(p), nil
}

// OnOpen implements quoit.Handler.
func (h *Handler) OnOpen(c *quoit.Conn) { c.SetContext(&peer{conn: c}) }

// after is what becomes of a connection after one of its requests.
type after int

const (
	goesOn  after = iota
	moves         // to a goroutine, with the request, which was not served
	streams       // its response, on a goroutine
	closes
	aborts
)

// OnData implements quoit.Handler: it serves all requests that are completely there.
func (h *Handler) OnData(c *quoit.Conn) {
	from := c.Context().(*peer)
	view, _ := c.Peek(c.Buffered())
	if len(view) < from.need {
		return
	}
	verdict, whole := frame.Scan(view, h.limit)
	from.need = whole
	if verdict != frame.Whole {
		if verdict == frame.Move {
			h.move(c, nil)
		}
		return
	}
	w := works.Get().(*work)
	w.begin(c, view)
	w.ctx.Init2(from, h.logger(), false)
	used, then := 0, goesOn
	for {
		from.need = 0
		if then = h.serve(w, from, len(view)-used-whole); then == moves {
			break
		}
		used += whole
		if then != goesOn || len(view) == used || len(w.out.rest) > 0 {
			break
		}
		if verdict, whole = frame.Scan(view[used:], h.limit); verdict != frame.Whole {
			from.need = whole
			if verdict == frame.Move {
				then = moves
			}
			break
		}
	}
	c.Discard(used)
	h.finish(c, w, then)
}

// serve serves one request; left is how many bytes follow it.
func (h *Handler) serve(w *work, from *peer, left int) after {
	ctx := w.ctx
	if h.server.DisableHeaderNamesNormalizing {
		ctx.Request.Header.DisableNormalizing()
		ctx.Response.Header.DisableNormalizing()
	}
	ctx.Response.Header.SetNoDefaultContentType(h.server.NoDefaultContentType)
	err := ctx.Request.Read(w.reader)
	// Where the parser sees another end than frame.Scan does, it is not for the loop.
	if err != nil || w.reader.Buffered()+w.source.Len() != left || h.blocks != nil && h.blocks(&ctx.Request) {
		return moves
	}
	head := ctx.Request.Header.IsHead()
	ending := ctx.Request.Header.ConnectionClose()
	h.handler(ctx)
	if ctx.Hijacked() {
		h.logger().Printf("quoit: a handler hijacked a connection on the loop, which is closed; serve %s by Blocking", ctx.Path())
		return aborts
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
		return streams
	}
	// The output takes everything.
	_ = response.Write(w.writer)
	if ending {
		return closes
	}
	w.reset()
	return goesOn
}

// finish sends what was written, and does what was decided.
func (h *Handler) finish(c *quoit.Conn, w *work, then after) {
	_ = w.writer.Flush() // the output takes everything
	rest := w.out.rest
	switch {
	case then == aborts:
		_ = c.Abort() // or it has ended
		return        // a context cannot be told to forget a hijacker
	case then == streams:
		h.move(c, func(n net.Conn) bool {
			w.writer.Reset(n)
			_, first := w.writer.Write(rest)
			err := errors.Join(first, w.stream.Write(w.writer), w.writer.Flush())
			return err == nil && !w.ending
		})
		return // and it is the goroutine's
	case len(rest) > 0:
		h.move(c, func(n net.Conn) bool {
			_, err := n.Write(rest)
			return err == nil && then != closes
		})
	case then == moves:
		h.move(c, nil)
	case then == closes:
		_ = c.Close() // or the peer has gone
	}
	w.reset()
	w.out = output{}
	works.Put(w)
}

// begin prepares for the requests that are in view.
func (w *work) begin(c *quoit.Conn, view []byte) {
	w.out.conn = c
	w.writer.Reset(&w.out)
	w.source.Reset(view)
	w.reader.Reset(&w.source)
}

// reset forgets a request and its response.
func (w *work) reset() {
	w.ctx.ResetUserValues()
	w.ctx.Request.Reset()
	w.ctx.Response.Reset()
}

// move serves the connection on a goroutine from now on, after what first writes, which answers whether it goes on.
func (h *Handler) move(c *quoit.Conn, first func(n net.Conn) bool) {
	n, err := c.Detach()
	if err != nil {
		return // it has closed meanwhile
	}
	go func() {
		if first != nil && !first(n) {
			_ = n.Close() // the peer may have gone
			return
		}
		if err := h.server.ServeConn(n); err != nil && h.server.LogAllErrors {
			h.logger().Printf("quoit: serving %v: %v", n.RemoteAddr(), err)
		}
	}()
}

func (h *Handler) logger() fasthttp.Logger {
	if h.server.Logger != nil {
		return h.server.Logger
	}
	return silent{}
}

// silent is for servers without a logger.
type silent struct{}

func (silent) Printf(string, ...any) {}
