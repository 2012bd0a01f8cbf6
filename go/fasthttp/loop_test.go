package fasthttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/internal/turns"
	"github.com/valyala/fasthttp"
)

func routes(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/where":
		// Only a connection that can be read from is a goroutine's.
		if _, over := ctx.Conn().(*quoit.NetConn); over {
			ctx.WriteString("goroutine")
		} else {
			ctx.WriteString("loop")
		}
	case "/echo":
		ctx.SetContentType("text/x-echo")
		ctx.Response.Header.Set("X-Remote", ctx.RemoteAddr().String())
		ctx.Write(ctx.PostBody())
	case "/large":
		ctx.Write(make([]byte, 3<<20))
	case "/stream":
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
			for range 100 {
				w.WriteString("piece")
				w.Flush()
			}
		})
	case "/hijack":
		ctx.Hijack(func(c net.Conn) { c.Write([]byte("mine")) })
		ctx.SetStatusCode(fasthttp.StatusSwitchingProtocols)
	default:
		ctx.NotFound()
	}
}

func start(t *testing.T, engine quoit.Engine, options ...loop.Option) net.Addr {
	t.Helper()
	return serve(t, engine, loop.New(routes, options...))
}

// serve runs a handler on one loop until the test is over.
func serve(t *testing.T, engine quoit.Engine, handler *loop.Handler, more ...quoit.Option) net.Addr {
	t.Helper()
	options := []quoit.Option{
		quoit.WithEngine(engine), quoit.WithLoops(1), quoit.WithLogger(slog.New(slog.DiscardHandler)),
	}
	server, err := quoit.Start("127.0.0.1:0", handler, append(options, more...)...)
	if err != nil {
		required.Skip(t, engine, err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(over)
	})
	return server.Addr()
}

func onEngines(t *testing.T, test func(t *testing.T, engine quoit.Engine)) {
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll, quoit.EngineStd} {
		t.Run(engine.String(), func(t *testing.T) { test(t, engine) })
	}
}

type client struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, address net.Addr) client {
	t.Helper()
	connection, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(20 * time.Second))
	return client{connection, bufio.NewReader(connection)}
}

func (c client) answer(t *testing.T, method string) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

const where = "GET /where HTTP/1.1\r\nHost: x\r\n\r\n"

func TestWhereRequestsAreServed(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine, loop.Blocking(func(r *fasthttp.Request) bool {
			return string(r.URI().QueryString()) == "slow"
		}))
		for request, want := range map[string]string{
			where: "loop",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":                                  "loop",
			"GET /where?slow HTTP/1.1\r\nHost: x\r\n\r\n":                                                      "goroutine",
			"POST /where HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n":         "goroutine",
			"GET /where HTTP/1.0\r\n\r\n":                                                                      "goroutine",
			"GET /where HTTP/1.1\r\nHost: x\r\nupgrade: x\r\n\r\n":                                             "goroutine",
			"GET /where HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 4<<10) + "\r\n\r\n":                  "Too big request header",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000): "goroutine",
		} {
			c := dial(t, address)
			io.WriteString(c, where+request)
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Errorf("%.60q: the one before was served on a %s", request, body)
			}
			if response, body := c.answer(t, "GET"); body != want {
				t.Errorf("%.60q: %s, not %s (%s)", request, body, want, response.Status)
			}
		}
	})
}

func TestPipelinedResponsesKeepTheirOrder(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		var requests bytes.Buffer
		for number := range 500 {
			text := fmt.Sprint(number)
			fmt.Fprintf(&requests, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
		go c.Write(requests.Bytes())
		for number := range 500 {
			response, body := c.answer(t, "POST")
			if body != fmt.Sprint(number) || response.Header.Get("X-Remote") != c.LocalAddr().String() {
				t.Fatalf("%d: %q, %v", number, body, response.Header)
			}
		}
	})
}

// Each request is cut at every place; the part before the cut arrives behind a request that is answered meanwhile.
func TestRequestsThatComeInParts(t *testing.T) {
	const request = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabcde\r\n\r\n"
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		for cut := range len(request) {
			io.WriteString(c, where+request[:cut])
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Fatalf("%d: %q", cut, body)
			}
			io.WriteString(c, request[cut:]+where)
			if _, body := c.answer(t, "POST"); body != "abcde\r\n\r\n" {
				t.Fatalf("%d: %q", cut, body)
			}
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Fatalf("%d: %q", cut, body)
			}
		}
	})
}

func TestResponsesOfEverySizeAreGathered(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		var sizes []int
		for size := 0; size < 5000; size += 61 {
			sizes = append(sizes, size)
		}
		sizes = append(sizes, 20000, 1, 30000)
		content := bytes.Repeat([]byte("0123456789ab"), 3000)
		var requests bytes.Buffer
		for _, size := range sizes {
			fmt.Fprintf(&requests, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, content[:size])
		}
		go c.Write(requests.Bytes())
		for _, size := range sizes {
			if response, body := c.answer(t, "POST"); response.StatusCode != 200 || body != string(content[:size]) {
				t.Fatalf("%d: %s, %d bytes", size, response.Status, len(body))
			}
		}
	})
}

func TestWhatLeavesTheLoop(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine)
		c := dial(t, address)
		io.WriteString(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"+where)
		if _, body := c.answer(t, "GET"); len(body) != 3<<20 {
			t.Error(len(body))
		}
		if _, body := c.answer(t, "GET"); body != "goroutine" {
			t.Error(body)
		}
		c = dial(t, address)
		io.WriteString(c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"+where)
		if _, body := c.answer(t, "GET"); body != strings.Repeat("piece", 100) {
			t.Error(len(body))
		}
		if _, body := c.answer(t, "GET"); body != "goroutine" {
			t.Error(body)
		}
		c = dial(t, address)
		io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: mine\r\n\r\n")
		c.answer(t, "GET")
		if rest, err := io.ReadAll(c.reader); string(rest) != "mine" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		c = dial(t, address)
		io.WriteString(c, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.reader.ReadByte(); err == nil {
			t.Error("a hijack on the loop is answered")
		}
	})
}

// What fasthttp's own server refuses is refused as by it, also behind a request that is served on the loop.
func TestMalformedRequestsAreRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine)
		for _, request := range []string{
			"GET /where HTTP/1.1\r\n\r\n", "GET /where HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
			"GET /where HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET /where HTTP/1.1\r\nHost: a\\b\r\n\r\n",
			"GET /where HTTP/1.1\r\nHost: x?y\r\n\r\n", "GET /wh\x01ere HTTP/1.1\r\nHost: x\r\n\r\n",
			"GET 1://x/where HTTP/1.1\r\nHost: x\r\n\r\n", "GET /where HTTP/1.1\r\nHost : x\r\n\r\n",
			"GET /where HTTP/1.1\r\nHost: x\r\nX: \x01\r\n\r\n", "GET /where HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "nonsense\r\n\r\n",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
			"POST /where HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
		} {
			c := dial(t, address)
			io.WriteString(c, where+request)
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Errorf("%q: the one before was served on a %s", request, body)
			}
			if response, body := c.answer(t, "GET"); response.StatusCode != 400 || !response.Close {
				t.Errorf("%q: %s, %q", request, response.Status, body)
			}
		}
	})
}

func TestHeadAndClose(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		io.WriteString(c, "HEAD /where HTTP/1.1\r\nHost: x\r\n\r\n"+"GET /missing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if response, _ := c.answer(t, "HEAD"); response.ContentLength != 4 || response.Header.Get("Server") != "fasthttp" {
			t.Error(response.ContentLength, response.Header)
		}
		if response, _ := c.answer(t, "GET"); response.StatusCode != 404 || !response.Close {
			t.Error(response.Status, response.Header)
		}
		if _, err := c.reader.ReadByte(); err != io.EOF {
			t.Error(err)
		}
	})
}

// A balancer's header names the client, on the loop and off it.
func TestRequestsHaveTheAddressOfAHeader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		show := func(ctx *fasthttp.RequestCtx) { fmt.Fprint(ctx, ctx.RemoteAddr(), " ", ctx.LocalAddr()) }
		off := loop.Blocking(func(r *fasthttp.Request) bool { return string(r.URI().Path()) == "/off" })
		address := serve(t, engine, loop.New(show, off), quoit.WithProxyProtocol(0))
		for _, path := range []string{"/on", "/off"} {
			c := dial(t, address)
			io.WriteString(c, "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nGET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, body := c.answer(t, "GET"); body != "192.0.2.7:56324 198.51.100.1:443" {
				t.Errorf("%s: %q", path, body)
			}
		}
	})
}

// Requests that come faster than they are served stop their peer. One behind which the connection leaves the loop lets it go on.
func TestWhatLeavesTheLoopBehindManyRequestsReceives(t *testing.T) {
	const limit, requests = 1000, turns.Share + 40 // more than the limit is left for the turn in which it leaves
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, serve(t, engine, loop.New(routes, loop.RequestLimit(limit/2)), quoit.WithInboundLimit(limit)))
		io.WriteString(c, strings.Repeat(where, requests)+"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
		for range requests {
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Fatalf("a request is served on a %s", body)
			}
		}
		c.answer(t, "GET")
		io.WriteString(c, where)
		if _, body := c.answer(t, "GET"); body != "goroutine" {
			t.Errorf("the one behind the stream is served on a %s", body)
		}
	})
}
