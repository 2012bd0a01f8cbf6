package fasthttp_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"testing"

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
