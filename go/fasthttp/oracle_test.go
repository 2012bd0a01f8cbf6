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
	fmt.Fprintf(ctx, "%s %s %s %q %q %s", ctx.Method(), ctx.RequestURI(), ctx.Request.Header.Protocol(), ctx.Host(),
		ctx.Request.Body(), strings.Join(fields, " "))
}

func TestAsFasthttp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0)
	stock := &fasthttp.Server{Handler: describes, Logger: quiet}
	go stock.Serve(listener)
	t.Cleanup(func() { stock.Shutdown() })
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		ours := serve(t, engine, loop.New(describes, loop.WithServer(&fasthttp.Server{Logger: quiet})))
		oracle.HTTP(t, listener.Addr(), ours, oracle.Ends())
		oracle.HTTP(t, listener.Addr(), ours, oracle.EachCut())
		oracle.HTTP(t, listener.Addr(), ours, oracle.Hostile(1, 1500))
	})
}
