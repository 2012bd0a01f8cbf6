package fasthttp_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/oracle"
	"github.com/valyala/fasthttp"
)

// describes answers with what it sees of the request.
func describes(ctx *fasthttp.RequestCtx) {
	fields := []string{}
	for name, value := range ctx.Request.Header.All() {
		fields = append(fields, fmt.Sprintf("%s=%q", name, value))
	}
	slices.Sort(fields)
	fmt.Fprintf(ctx, "%s %s %s %q %v ", ctx.Method(), ctx.RequestURI(), ctx.Request.Header.Protocol(), ctx.Host(), ctx.Request.IsBodyStream())
	form, err := ctx.MultipartForm()
	fmt.Fprintf(ctx, "%v %v %q %q %s", form, err, ctx.FormValue("a"), ctx.Request.Body(), strings.Join(fields, " "))
}

func TestAsFasthttp(t *testing.T) {
	asFasthttp(t, func(*fasthttp.Server) {}, func(t *testing.T, stock, ours net.Addr) {
		oracle.HTTP(t, stock, ours, oracle.Ends())
		oracle.HTTP(t, stock, ours, oracle.EachCut())
		oracle.HTTP(t, stock, ours, oracle.Hostile(1, 1500))
	})
}

func TestRequestsOfAllDoorsAsFasthttp(t *testing.T) {
	var comparison oracle.Comparison
	asFasthttp(t, func(*fasthttp.Server) {}, func(t *testing.T, stock, ours net.Addr) {
		comparison.Stock = stock
		comparison.With(t, ours)
	})
}

// The limits of time end the same connections, with the same responses.
func TestLimitsOfTimeAsFasthttp(t *testing.T) {
	const limit = 100 * time.Millisecond
	exchange := func(name string, pieces ...string) oracle.Exchange {
		return oracle.Exchange{Name: name, Waits: true, Pieces: pieces}
	}
	idle := exchange("idle", get)
	parts := []oracle.Exchange{
		exchange("nothing"),
		exchange("part of a head", "GET / HTTP/1.1\r\nHo"),
		exchange("part of a body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"),
		exchange("part of chunks", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
		exchange("part of a second head", get+"GET / H"),
		exchange("idle", get),
	}
	for name, of := range map[string]struct {
		configure func(server *fasthttp.Server)
		exchanges []oracle.Exchange
	}{
		"ReadTimeout": {func(server *fasthttp.Server) { server.ReadTimeout = limit }, parts},
		"IdleTimeout": {func(server *fasthttp.Server) { server.IdleTimeout = limit }, []oracle.Exchange{idle}},
		"both": {func(server *fasthttp.Server) {
			server.ReadTimeout, server.IdleTimeout = limit, 2*limit
		}, parts},
		"an error handler": {func(server *fasthttp.Server) {
			server.ReadTimeout = limit
			server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
				var timeout net.Error
				fmt.Fprint(ctx, errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded))
			}
		}, parts},
	} {
		t.Run(name, func(t *testing.T) {
			asFasthttp(t, of.configure, func(t *testing.T, stock, ours net.Addr) {
				// On a machine that is late, a request may come when its time is up.
				oracle.HTTPWithRaces(t, stock, ours, of.exchanges, 20)
			})
		})
	}
}

// serveStock serves with fasthttp's own server, and returns its address.
func serveStock(t *testing.T, server *fasthttp.Server) net.Addr {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Shutdown() })
	return listener.Addr()
}

// asFasthttp starts a server of fasthttp, and for each engine one of the same handler on a loop.
func asFasthttp(t *testing.T, configure func(*fasthttp.Server), compare func(t *testing.T, stock, ours net.Addr)) {
	made := func() *fasthttp.Server {
		server := &fasthttp.Server{Handler: describes, Logger: log.New(io.Discard, "", 0)}
		configure(server)
		return server
	}
	stock := serveStock(t, made())
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		ours := serve(t, engine, loop.New(describes, loop.WithServer(made())))
		compare(t, stock, ours)
	})
}
