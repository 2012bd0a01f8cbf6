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

// work is what serving one request takes.
type work struct {
	source bytes.Reader
	reader *bufio.Reader
	out    bytes.Buffer
	writer *bufio.Writer
	ctx    fasthttp.RequestCtx
}

var works = sync.Pool{New: func() any {
	w := &work{reader: bufio.NewReaderSize(nil, 4<<10)}
	w.writer = bufio.NewWriterSize(&w.out, 4<<10)
	return w
}}

// OnOpen implements quoit.Handler.
func (h *Handler) OnOpen(c *quoit.Conn) { c.SetContext(&peer{conn: c}) }

// OnData implements quoit.Handler: it serves all requests that are completely there.
func (h *Handler) OnData(c *quoit.Conn) {
	from := c.Context().(*peer)
	if c.Buffered() < from.need {
		return
	}
	from.need = 0
	for c.Buffered() > 0 && !c.IsClosed() {
		view, _ := c.Peek(c.Buffered())
		verdict, whole := frame.Scan(view, h.limit)
		if verdict == frame.More {
			from.need = whole
			return
		}
		if verdict == frame.Move {
			h.move(c, nil)
			return
		}
		if !h.serve(c, from, view[:whole]) {
			return
		}
	}
}

// serve serves one request; false if the connection has left the loop.
func (h *Handler) serve(c *quoit.Conn, from *peer, raw []byte) (stays bool) {
	w := works.Get().(*work)
	w.source.Reset(raw)
	w.reader.Reset(&w.source)
	ctx := &w.ctx
	ctx.Init2(from, h.logger(), false)
	if err := ctx.Request.Read(w.reader); err != nil || h.blocks != nil && h.blocks(&ctx.Request) {
		h.recycle(w)
		h.move(c, nil)
		return false
	}
	head := ctx.Request.Header.IsHead()
	closes := ctx.Request.Header.ConnectionClose()
	h.handler(ctx)
	c.Discard(len(raw))
	response := &ctx.Response
	late := ctx.LastTimeoutErrorResponse()
	if late != nil {
		// The handler's goroutines may use the context for ever, so it is not used again.
		response = late
	}
	if ctx.Hijacked() {
		h.logger().Printf("quoit: a handler hijacked a connection on the loop, which is closed; serve %s by Blocking", ctx.Path())
		_ = c.Abort() // or it has ended
		return false
	}
	closes = closes || response.Header.ConnectionClose()
	if closes {
		response.Header.SetConnectionClose()
	}
	if len(response.Header.Server()) == 0 && h.name != "" {
		response.Header.SetServer(h.name)
	}
	response.SkipBody = response.SkipBody || head
	if response.IsBodyStream() {
		h.move(c, func(n net.Conn) bool {
			err := response.Write(w.writerTo(n))
			return errors.Join(err, w.writer.Flush()) == nil && !closes
		})
		return false
	}
	w.out.Reset()
	w.writer.Reset(&w.out)
	// The memory that it writes to takes everything.
	_ = response.Write(w.writer)
	_ = w.writer.Flush()
	_, err := c.Write(w.out.Bytes())
	if errors.Is(err, quoit.ErrFull) || errors.Is(err, quoit.ErrTooLarge) {
		rest := bytes.Clone(w.out.Bytes())
		h.move(c, func(n net.Conn) bool {
			_, err := n.Write(rest)
			return err == nil && !closes
		})
		stays = false
	} else {
		stays = !closes
		if closes {
			_ = c.Close() // or the peer has gone
		}
	}
	if late == nil {
		h.recycle(w)
	}
	return stays
}

func (w *work) writerTo(n net.Conn) *bufio.Writer {
	w.writer.Reset(n)
	return w.writer
}

func (h *Handler) recycle(w *work) {
	w.ctx.ResetUserValues()
	w.ctx.Request.Reset()
	w.ctx.Response.Reset()
	works.Put(w)
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
