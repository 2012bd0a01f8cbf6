package loophttp_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/loophttp"
)

// size is that of a response: the queue of a connection has room for some.
const size = 64 << 10

// greedy is a client that asks, and reads nothing until its connection is over.
type greedy struct {
	net.Conn
	served chan struct{} // a request was answered
}

func (g *greedy) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := respond(w); err == nil {
		g.served <- struct{}{}
	}
}

func (g *greedy) ask() error {
	_, err := io.WriteString(g, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return err
}

func respond(w http.ResponseWriter) error {
	_, err := w.Write(make([]byte, size))
	return err
}

// A peer that takes nothing of its responses is let go: by net/http with an end, by ours with a reset.
func TestWriteTimeoutLetsGoOfWhoTakesNothing(t *testing.T) {
	const limit = 200 * time.Millisecond
	quietly := log.New(io.Discard, "", 0)
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client := &greedy{dial(t, listener.Addr()).Conn, make(chan struct{}, 1)}
		closed := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = respond(w) })
		server := &http.Server{Handler: handler, WriteTimeout: limit, ErrorLog: quietly, ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateIdle: // The end of the response is written, too: no request is sent to who has given up.
				client.served <- struct{}{}
			case http.StateClosed:
				close(closed)
			}
		}}
		go server.Serve(listener)
		defer server.Close()
		for over := false; !over; {
			if err := client.ask(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-client.served:
			case <-closed:
				over = true
			}
		}
		if _, err := io.Copy(io.Discard, client); err != nil {
			t.Errorf("no difference any more, though listed in docs/go.md: %v", err)
		}
	})
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll} {
		t.Run(engine.String(), func(t *testing.T) {
			client := &greedy{served: make(chan struct{}, 1)}
			handler := loophttp.New(client, loophttp.WithServer(&http.Server{WriteTimeout: limit, ErrorLog: quietly}))
			server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
				quoit.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			client.Conn = dial(t, server.Addr()).Conn
			defer client.Close()
			figure := func(name string) uint64 { return server.Loops().Counters()[0].Get(name) }
			within, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var told error // Of the one reset, by who asks or who reads.
			served := func() bool {
				if told = client.ask(); told != nil {
					return false
				}
				for server.Connections() > 0 {
					select {
					case <-client.served:
						return true
					case <-within.Done():
						t.Fatal("a request is not answered")
					default:
						runtime.Gosched()
					}
				}
				return false // It is let go of with the request on its way.
			}
			for server.Connections() == 0 { // It is told of its client.
				runtime.Gosched()
			}
			if !served() {
				t.Fatal("the first request is not answered")
			}
			for asked := uint64(1); server.Connections() > 0; {
				// What is queued for a while only leaves again.
				for server.Connections() > 0 && (figure("sent_bytes") < asked*size || figure("queued_bytes") > 0) {
					if within.Err() != nil {
						t.Fatal("the client is not let go of")
					}
					runtime.Gosched()
				}
				if server.Connections() > 0 && !served() {
					break
				}
				asked++
			}
			if told == nil {
				_, told = io.Copy(io.Discard, client)
			}
			if !errors.Is(told, syscall.ECONNRESET) {
				t.Errorf("the client is told %v", told)
			}
			if err := server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// telling is a Handler that tells of its connections.
type telling struct {
	*loophttp.Handler
	connections chan *quoit.Conn
}

func (h telling) OnOpen(c *quoit.Conn) {
	h.Handler.OnOpen(c)
	h.connections <- c
}

// So it is where more of a response is left than the queue of the connection has room for: also where the peer takes something later,
// to which a part would look like the whole if the body ends with the connection.
func TestWriteTimeoutResetsBehindALargeResponse(t *testing.T) {
	for _, path := range []string{"/goes on", "/ends"} {
		t.Run(path[1:], func(t *testing.T) {
			onEngines(t, func(t *testing.T, engine quoit.Engine) {
				h := telling{loophttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/ends" {
						w.Header().Set("Transfer-Encoding", "identity")
					}
					_, _ = w.Write(make([]byte, 16<<20))
				}), loophttp.WithServer(&http.Server{WriteTimeout: 100 * time.Millisecond})), make(chan *quoit.Conn, 1)}
				server, err := quoit.Start("127.0.0.1:0", h, quoit.WithEngine(engine), quoit.WithLoops(1),
					quoit.WithLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					required.Skip(t, engine, err)
				}
				defer server.Shutdown(t.Context())
				c := dial(t, server.Addr())
				io.WriteString(c.Conn, "GET "+strings.ReplaceAll(path, " ", "%20")+" HTTP/1.1\r\nHost: x\r\n\r\n")
				connection := receive(t, h.connections)
				for end := time.Now().Add(patience); !connection.IsClosed(); runtime.Gosched() {
					if time.Now().After(end) {
						t.Fatal("it is not let go of")
					}
				}
				if n, err := io.Copy(io.Discard, c.Conn); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("behind %d bytes the client is told %v", n, err)
				}
			})
		})
	}
}
