package fasthttp_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/oracle"
	"github.com/valyala/fasthttp"
)

// What docs/go.md lists under "differs": each is as listed on our loops, and not so with fasthttp.

// fasthttp's server counts by itself the requests of a connection that has left the loop.
func TestRequestsAreCountedAnewOffTheLoop(t *testing.T) {
	limit := func(server *fasthttp.Server) { server.MaxRequestsPerConn = 2 }
	asFasthttp(t, limit, func(t *testing.T, stock, ours net.Addr) {
		oracle.HTTP(t, stock, ours, []oracle.Exchange{
			{Name: "all on the loop", Pieces: []string{get + get + get}, AnyEnd: true},
			{Name: "one there and more elsewhere", Pieces: []string{get + chunks + get + get}, AnyEnd: true, Differs: "a response more"},
		})
	})
}

// differing runs a test with a server of fasthttp, and with one on the loops of each engine.
func differing(t *testing.T, made func() *fasthttp.Server, test func(t *testing.T, address net.Addr, stock bool)) {
	t.Run("stock", func(t *testing.T) {
		test(t, serveStock(t, made()), true)
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		server := made()
		test(t, serve(t, engine, loop.New(server.Handler, loop.WithServer(server))), false)
	})
}

// What only fasthttp's server can set is not there on the loop, and a connection has another number in each turn.
func TestWhatTheLoopDoesNotKnowOfARequest(t *testing.T) {
	made := func() *fasthttp.Server {
		return &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
			fmt.Fprint(ctx, !ctx.Time().IsZero(), " ", ctx.ConnRequestNum(), " ", ctx.ConnID())
		}}
	}
	differing(t, made, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		var connections []string
		for number := range 2 {
			io.WriteString(c, get)
			_, body := c.answer(t, "GET")
			want := "false 0 "
			if stock {
				want = fmt.Sprint("true ", number+1, " ")
			}
			connection, is := strings.CutPrefix(body, want)
			if !is {
				t.Errorf("%q does not begin with %q", body, want)
			}
			connections = append(connections, connection)
		}
		if (connections[0] == connections[1]) != stock {
			t.Error(connections)
		}
	})
}

// A connection that is served on the loop does not count among those that fasthttp's server limits, nor is its state told.
func TestConnectionsOnTheLoopAreNotCountedByFasthttp(t *testing.T) {
	var states atomic.Int64
	made := func() *fasthttp.Server {
		states.Store(0)
		return &fasthttp.Server{
			Handler: describes, Logger: log.New(io.Discard, "", 0), Concurrency: 1, // MaxConnsPerIP is counted beside it, with a data race of fasthttp's at its Shutdown
			ConnState: func(net.Conn, fasthttp.ConnState) { states.Add(1) },
		}
	}
	differing(t, made, func(t *testing.T, address net.Addr, stock bool) {
		first, second := dial(t, address), dial(t, address)
		io.WriteString(first, get)
		first.answer(t, "GET")
		io.WriteString(second, get)
		response, err := http.ReadResponse(second.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (response.StatusCode == http.StatusOK) == stock || (states.Load() > 0) != stock {
			t.Errorf("%v, %d states", response.Status, states.Load())
		}
	})
}

// A connection that a handler takes over on the loop is reset, as nothing can be done with it there.
func TestAHijackOnTheLoopEndsTheConnection(t *testing.T) {
	made := func() *fasthttp.Server {
		return &fasthttp.Server{Logger: log.New(io.Discard, "", 0), Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.HijackSetNoResponse(true)
			ctx.Hijack(func(connection net.Conn) { io.WriteString(connection, "mine") })
		}}
	}
	differing(t, made, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		io.WriteString(c, get)
		all, err := io.ReadAll(c.reader)
		if stock && (string(all) != "mine" || err != nil) || !stock && (len(all) > 0 || err != nil) {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// The connection of a request is known on the loop, but can neither be read from nor written to, and has no deadlines. It can be closed.
func TestTheConnectionOfARequestOnTheLoop(t *testing.T) {
	made := func() *fasthttp.Server {
		return &fasthttp.Server{Logger: log.New(io.Discard, "", 0), Handler: func(ctx *fasthttp.RequestCtx) {
			c := ctx.Conn()
			switch string(ctx.Path()) {
			case "/close":
				fmt.Fprint(ctx, c.Close())
			case "/write":
				_, err := c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ndirect"))
				if err == nil {
					_ = c.Close()
				}
				fmt.Fprint(ctx, err == quoit.ErrOnLoop)
			case "/read":
				if errors.Is(c.SetReadDeadline(time.Unix(1, 0)), errors.ErrUnsupported) {
					_, err := c.Read(make([]byte, 1))
					fmt.Fprint(ctx, err == quoit.ErrOnLoop)
				} else {
					_, err := c.Read(make([]byte, 1))
					fmt.Fprint(ctx, errors.Is(err, os.ErrDeadlineExceeded))
				}
			default:
				fmt.Fprint(ctx, c.RemoteAddr().String() == ctx.RemoteAddr().String(), c.LocalAddr().String() == ctx.LocalAddr().String())
			}
		}}
	}
	differing(t, made, func(t *testing.T, address net.Addr, stock bool) {
		for _, one := range []struct{ path, here, stock string }{
			{"/", "true true", "true true"}, {"/write", "true", "direct"}, {"/read", "true", "true"},
		} {
			c := dial(t, address)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", one.path)
			want := one.here
			if stock {
				want = one.stock
			}
			if _, body := c.answer(t, "GET"); body != want {
				t.Errorf("%s: %q, and not %q", one.path, body, want)
			}
		}
		c := dial(t, address)
		io.WriteString(c, "GET /close HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.reader.ReadByte(); err == nil {
			t.Error("a response has come")
		}
	})
}

// TestChildOfFasthttpThatPanics is what the process of TestAPanicEndsItsConnection does.
func TestChildOfFasthttpThatPanics(t *testing.T) {
	if os.Getenv("QUOIT_TEST_PANICS") == "" {
		t.Skip("it is run by another test")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go fasthttp.Serve(listener, panics)
	c := dial(t, listener.Addr())
	io.WriteString(c, get)
	_, _ = c.reader.ReadByte() // returns when the test is over otherwise
}

func panics(*fasthttp.RequestCtx) { panic("as asked") }

// A handler's panic ends its connection. That of fasthttp ends the program.
func TestAPanicEndsItsConnection(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(program, "-test.run", "^TestChildOfFasthttpThatPanics$")
		child.Env = append(os.Environ(), "QUOIT_TEST_PANICS=yes")
		if output, err := child.CombinedOutput(); err == nil || !strings.Contains(string(output), "panic: as asked") {
			t.Errorf("no difference any more, though listed in docs/go.md: %v\n%s", err, output)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := serve(t, engine, loop.New(func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) == "/panics" {
				panics(ctx)
			}
		}))
		c := dial(t, address)
		io.WriteString(c, "GET /panics HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.reader.ReadByte(); err == nil {
			t.Error("a response has come")
		}
		c = dial(t, address)
		io.WriteString(c, get)
		c.answer(t, "GET")
	})
}
