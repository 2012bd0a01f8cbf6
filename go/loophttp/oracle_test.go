package loophttp_test

import (
	"io"
	"log"
	"net"
	"net/http"
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
