package loophttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/oracle"
	"github.com/quoit-io/quoit/go/loophttp"
)

// differs has what docs/go.md lists under "differs".
var differs = map[string]string{
	"head /counted/x":  invalidLength,
	"head /counted/-1": invalidLength,
}

const invalidLength = "net/http sends a Content-Length that is none with the response to a HEAD"

// serveStock serves with net/http's own server, and returns its address.
func serveStock(t *testing.T, server *http.Server) net.Addr {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener.Addr()
}

// stockAndOurs starts a server of net/http, and for each engine one of the same routes on a loop.
func stockAndOurs(t *testing.T, configure func(server *http.Server), compare func(t *testing.T, stock, ours net.Addr)) {
	made := func() *http.Server {
		server := &http.Server{Handler: oracle.Routes(), ErrorLog: log.New(io.Discard, "", 0)}
		configure(server)
		return server
	}
	stock := serveStock(t, made())
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		ours := serve(t, engine, loophttp.New(oracle.Routes(), loophttp.WithServer(made())))
		compare(t, stock, ours)
	})
}

func TestAsNetHTTP(t *testing.T) {
	stockAndOurs(t, func(*http.Server) {}, func(t *testing.T, stock, ours net.Addr) {
		oracle.HTTP(t, stock, ours, oracle.Features(differs))
		oracle.HTTP(t, stock, ours, oracle.Ends())
		oracle.HTTP(t, stock, ours, oracle.EachCut())
		oracle.HTTP(t, stock, ours, oracle.Hostile(1, 1500))
	})
}

func TestRequestsOfAllDoorsAsNetHTTP(t *testing.T) {
	var comparison oracle.Comparison
	stockAndOurs(t, func(*http.Server) {}, func(t *testing.T, stock, ours net.Addr) {
		comparison.Stock = stock
		comparison.With(t, ours)
	})
}

// The limits of time end the same connections, and nothing is answered.
func TestLimitsOfTimeAsNetHTTP(t *testing.T) {
	const limit = 100 * time.Millisecond
	partOfHead := oracle.Exchange{Name: "part of a head", Waits: true, Pieces: []string{"GET / HTTP/1.1\r\nHo"}}
	nothing := oracle.Exchange{Name: "nothing", Waits: true}
	idle := oracle.Exchange{Name: "idle", Waits: true, Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}}
	second := oracle.Exchange{Name: "part of a second head", Waits: true, Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / H"}}
	for name, of := range map[string]struct {
		configure func(server *http.Server)
		exchanges []oracle.Exchange
	}{
		"ReadHeaderTimeout": {func(server *http.Server) { server.ReadHeaderTimeout = limit },
			[]oracle.Exchange{nothing, partOfHead, second}},
		"ReadTimeout": {func(server *http.Server) { server.ReadTimeout = limit },
			[]oracle.Exchange{nothing, partOfHead, second, idle}},
		"ReadTimeout of a body": {func(server *http.Server) { server.ReadTimeout = limit },
			[]oracle.Exchange{{Name: "part of a body", Waits: true,
				Pieces: []string{"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"}}}},
		"IdleTimeout": {func(server *http.Server) { server.IdleTimeout = limit }, []oracle.Exchange{idle}},
		"MaxHeaderBytes": {func(server *http.Server) { server.MaxHeaderBytes = 100 }, []oracle.Exchange{
			{Name: "a long head", Waits: true, Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\nX: " + string(make5000()) + "\r\n\r\n"}},
			{Name: "a long head that does not end", Waits: true, AnyEnd: true, Pieces: []string{
				"GET / HTTP/1.1\r\nHost: x\r\nX: " + string(make5000())}},
			{Name: "a head of some length", Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\nX: " + string(make5000()[:3000]) + "\r\n\r\n"}},
		}},
		"DisableGeneralOptionsHandler": {func(server *http.Server) { server.DisableGeneralOptionsHandler = true },
			[]oracle.Exchange{{Name: "options", Pieces: []string{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			stockAndOurs(t, of.configure, func(t *testing.T, stock, ours net.Addr) {
				// On a machine that is late, a request may come when its time is up.
				oracle.HTTPWithRaces(t, stock, ours, of.exchanges, 20)
			})
		})
	}
}

func make5000() []byte {
	text := make([]byte, 5000)
	for index := range text {
		text[index] = 'y'
	}
	return text
}

// The context that a server begins with is made once, as by net/http, whatever number of connections there are, on the loops and off
// them.
func TestTheBaseContextIsMadeOnce(t *testing.T) {
	type key struct{}
	var calls atomic.Int64
	made := func() *http.Server {
		calls.Store(0)
		server := quietServer(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Value(key{})) })
		server.BaseContext = func(l net.Listener) context.Context {
			if l == nil {
				t.Error("there is no listener")
			}
			return context.WithValue(context.Background(), key{}, calls.Add(1))
		}
		return server
	}
	blocks := []loophttp.Option{loophttp.Blocking(func(r *http.Request) bool { return r.URL.Path == "/blocks" })}
	differing(t, made, blocks, func(t *testing.T, address net.Addr, _ bool) {
		for _, path := range []string{"/", "/", "/blocks", "/"} {
			c := dial(t, address)
			io.WriteString(c.Conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, body := c.answer(t, "GET"); body != "1" {
				t.Errorf("%s: that of call %s", path, body)
			}
		}
	})
}

// Behind a response that has left the loop, the time for the head of a request begins with that, and not with the response.
func TestTimeBetweenRequestsBehindALargeResponse(t *testing.T) {
	const limit = 100 * time.Millisecond
	made := func() *http.Server {
		server := quietServer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 3<<20)) })
		server.ReadHeaderTimeout = limit
		return server
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, _ bool) {
		c := dial(t, address)
		for range 2 {
			io.WriteString(c.Conn, plainGet)
			if _, body := c.answer(t, "GET"); len(body) != 3<<20 {
				t.Fatal(len(body))
			}
			c.SetReadDeadline(time.Now().Add(5 * limit))
			if _, err := c.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it is not idle: %v", err)
			}
			c.SetReadDeadline(time.Now().Add(patience))
		}
	})
}
