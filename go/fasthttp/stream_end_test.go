package fasthttp_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/valyala/fasthttp"
)

// stream is the body of a response that tells when it is closed.
type stream struct {
	io.Reader
	closed chan struct{}
}

func (s stream) Close() error {
	close(s.closed)
	return nil
}

// telling is a Handler that tells of its connections.
type telling struct {
	*loop.Handler
	connections chan *quoit.Conn
}

func (h telling) OnOpen(c *quoit.Conn) {
	h.Handler.OnOpen(c)
	h.connections <- c
}

// The stream of a response is closed also if the connection has ended by then: what it holds would be lost otherwise, and who fills
// it would wait for ever.
func TestAStreamIsClosedWhoseConnectionHasEnded(t *testing.T) {
	test := func(t *testing.T, serve func(handler fasthttp.RequestHandler) net.Addr, end func(ctx *fasthttp.RequestCtx)) {
		closed := make(chan struct{})
		address := serve(func(ctx *fasthttp.RequestCtx) {
			end(ctx)
			ctx.SetBodyStream(stream{strings.NewReader("body"), closed}, -1)
		})
		c := dial(t, address)
		io.WriteString(c, get)
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Error("it is open")
		}
	}
	t.Run("stock", func(t *testing.T) {
		test(t, func(handler fasthttp.RequestHandler) net.Addr {
			return serveStock(t, &fasthttp.Server{Handler: handler, Logger: log.New(io.Discard, "", 0)})
		}, func(ctx *fasthttp.RequestCtx) { ctx.Conn().Close() })
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		connections := make(chan *quoit.Conn, 1)
		test(t, func(handler fasthttp.RequestHandler) net.Addr {
			server, err := quoit.Start("127.0.0.1:0", telling{loop.New(handler), connections}, quoit.WithEngine(engine),
				quoit.WithLoops(1), quoit.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
			return server.Addr()
		}, func(*fasthttp.RequestCtx) { _ = (<-connections).Abort() })
	})
}

// What a request holds is closed behind its response: the stream of that, and its values that can be closed. So it is if its handler
// panics, ends its goroutine, or takes the connection over. With fasthttp a panic ends the program.
func TestWhatARequestHoldsIsClosedHoweverItEnds(t *testing.T) {
	test := func(t *testing.T, serve func(handler fasthttp.RequestHandler) net.Addr, end func(ctx *fasthttp.RequestCtx)) {
		body, value := make(chan struct{}), make(chan struct{})
		address := serve(func(ctx *fasthttp.RequestCtx) {
			ctx.SetUserValue("value", stream{closed: value})
			ctx.SetBodyStream(stream{strings.NewReader("body"), body}, -1)
			end(ctx)
		})
		io.WriteString(dial(t, address), get)
		for name, closed := range map[string]chan struct{}{"the stream": body, "the value": value} {
			select {
			case <-closed:
			case <-time.After(20 * time.Second):
				t.Error(name, "is open")
			}
		}
	}
	for name, end := range map[string]func(ctx *fasthttp.RequestCtx){
		"return": func(*fasthttp.RequestCtx) {},
		"hijack": func(ctx *fasthttp.RequestCtx) { ctx.Hijack(func(net.Conn) {}) },
		"panic":  panics,
		"exit":   func(*fasthttp.RequestCtx) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "return" || name == "hijack" {
				t.Run("stock", func(t *testing.T) {
					test(t, func(handler fasthttp.RequestHandler) net.Addr {
						return serveStock(t, &fasthttp.Server{Handler: handler, Logger: log.New(io.Discard, "", 0)})
					}, end)
				})
			}
			onEngines(t, func(t *testing.T, engine quoit.Engine) {
				quietly := loop.WithServer(&fasthttp.Server{Logger: log.New(io.Discard, "", 0)})
				test(t, func(handler fasthttp.RequestHandler) net.Addr { return serve(t, engine, loop.New(handler, quietly)) }, end)
			})
		})
	}
}
