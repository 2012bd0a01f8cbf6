package fasthttp_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"runtime"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/valyala/fasthttp"
)

// ends is a handler of which some requests end their connection on the loop.
func ends(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/large":
		fmt.Fprint(ctx, strings.Repeat("x", 100<<10))
	case "/panics":
		panic("as asked")
	case "/exits":
		runtime.Goexit()
	case "/hijacks":
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(func(net.Conn) {})
	default:
		fmt.Fprintf(ctx, "%s", ctx.Path())
	}
}

// What was answered before a request that ends its connection still leaves, as it does with fasthttp's own server before a hijacker has
// the connection.
func TestResponsesBeforeAnEndLeave(t *testing.T) {
	check := func(t *testing.T, address net.Addr, path string) {
		for _, before := range []string{"/one", "/large"} {
			c, requests := dial(t, address), ""
			for _, one := range []string{"/first", before, path, "/behind"} {
				requests += "GET " + one + " HTTP/1.1\r\nHost: x\r\n\r\n"
			}
			io.WriteString(c, requests)
			if _, body := c.answer(t, "GET"); body != "/first" {
				t.Errorf("%q is the first", body)
			}
			if _, body := c.answer(t, "GET"); body != "/one" && len(body) != 100<<10 || (before == "/one") != (body == "/one") {
				t.Errorf("%.100q is the second", body)
			}
			// Nothing else has come, and it does not look like a fault of the network.
			if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil {
				t.Errorf("behind %s: %.100q, %v", before, rest, err)
			}
			c.Close()
		}
	}
	t.Run("stock", func(t *testing.T) {
		// Its panics end the program.
		check(t, serveStock(t, &fasthttp.Server{Handler: ends, Logger: log.New(io.Discard, "", 0)}), "/hijacks")
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		server := &fasthttp.Server{Logger: log.New(io.Discard, "", 0)}
		address := serve(t, engine, loop.New(ends, loop.WithServer(server)))
		for _, path := range []string{"/hijacks", "/panics", "/exits"} {
			t.Run(path, func(t *testing.T) { check(t, address, path) })
		}
	})
}
