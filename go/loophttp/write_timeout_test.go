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
