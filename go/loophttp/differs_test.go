package loophttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/loophttp"
)

// What docs/go.md lists under "differs": each is as listed on our loops, and not so with net/http.

// differing runs a test with a server of net/http, and with one on the loops of each engine.
func differing(
	t *testing.T, made func() *http.Server, options []loophttp.Option, test func(t *testing.T, address net.Addr, stock bool),
	ofLoops ...quoit.Option,
) {
	t.Run("stock", func(t *testing.T) {
		test(t, serveStock(t, made()), true)
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		server := made()
		handler := loophttp.New(server.Handler, append([]loophttp.Option{loophttp.WithServer(server)}, options...)...)
		test(t, serve(t, engine, handler, ofLoops...), false)
	})
}

// quietServer is one of net/http with this handler.
func quietServer(handler http.HandlerFunc) *http.Server {
	return &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
}

const plainGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// receive waits for something until the patience ends.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case one := <-from:
		return one
	case <-time.After(patience):
		t.Fatal("nothing has come")
		panic("unreachable")
	}
}

func TestALongBodyHasALengthAndIsNotChunked(t *testing.T) {
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 3000)) })
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		io.WriteString(c.Conn, plainGet)
		response, body := c.answer(t, "GET")
		chunked := len(response.TransferEncoding) > 0
		if len(body) != 3000 || chunked != stock || (response.ContentLength == 3000) == stock {
			t.Errorf("%d bytes, %v, a length of %d", len(body), response.TransferEncoding, response.ContentLength)
		}
	})
}

func TestTheHandlerStartsWhenTheWholeRequestIsThere(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("the rest comes %v", !waits), func(t *testing.T) {
			entered := make(chan error, 1)
			made := func() *http.Server {
				return quietServer(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						entered <- nil
						_, err := io.ReadAll(r.Body)
						entered <- err
					}
				})
			}
			differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
				c := dial(t, address)
				io.WriteString(c.Conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
				if stock {
					receive(t, entered)
				}
				// What came later is served.
				other := dial(t, address)
				io.WriteString(other.Conn, plainGet)
				other.answer(t, "GET")
				if len(entered) > 0 {
					t.Error("it has started")
				}
				if waits {
					c.Conn.(*net.TCPConn).CloseWrite()
				} else {
					io.WriteString(c.Conn, "def")
				}
				if !stock {
					receive(t, entered)
				}
				if err := receive(t, entered); errors.Is(err, io.ErrUnexpectedEOF) != waits {
					t.Error(err)
				}
			})
		})
	}
}

func TestWhatAResponseCannotDoOnTheLoop(t *testing.T) {
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, _ *http.Request) {
			_, flushes := w.(http.Flusher)
			controller := http.NewResponseController(w)
			supported := func(err error) bool { return !errors.Is(err, http.ErrNotSupported) }
			fmt.Fprint(w, flushes, supported(controller.EnableFullDuplex()), supported(controller.SetReadDeadline(time.Time{})),
				supported(controller.SetWriteDeadline(time.Time{})), supported(controller.Flush()))
		})
	}
	blocks := []loophttp.Option{loophttp.Blocking(func(r *http.Request) bool { return r.URL.Path == "/blocks" })}
	differing(t, made, blocks, func(t *testing.T, address net.Addr, stock bool) {
		for _, path := range []string{"/", "/blocks"} {
			c := dial(t, address)
			io.WriteString(c.Conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			expected := strings.TrimSpace(strings.Repeat(fmt.Sprint(stock || path == "/blocks", " "), 5))
			if _, body := c.answer(t, "GET"); body != expected {
				t.Errorf("%s: %s", path, body)
			}
		}
	})
}

func TestConnContextAndConnStateAreNotCalledOnTheLoop(t *testing.T) {
	type key struct{}
	called := make(chan http.ConnState, 100)
	made := func() *http.Server {
		server := quietServer(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Value(key{}) != nil) })
		server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, true) }
		server.ConnState = func(_ net.Conn, state http.ConnState) { called <- state }
		return server
	}
	blocks := []loophttp.Option{loophttp.Blocking(func(r *http.Request) bool { return r.URL.Path == "/blocks" })}
	differing(t, made, blocks, func(t *testing.T, address net.Addr, stock bool) {
		for _, path := range []string{"/", "/blocks"} {
			for len(called) > 0 {
				<-called
			}
			c := dial(t, address)
			io.WriteString(c.Conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			calls := stock || path == "/blocks"
			if _, body := c.answer(t, "GET"); body != fmt.Sprint(calls) {
				t.Errorf("%s: a context of the connection: %s", path, body)
			}
			if calls {
				if state := receive(t, called); state != http.StateNew {
					t.Errorf("%s: %v", path, state)
				}
			} else if len(called) > 0 {
				t.Errorf("%s: ConnState was called", path)
			}
			c.Close()
			for calls && receive(t, called) != http.StateClosed {
			}
		}
	})
}

// lines is a writer of logs.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestAPanicOnTheLoopIsLoggedByTheLoop(t *testing.T) {
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("as asked") })
	t.Run("stock", func(t *testing.T) {
		logged := make(lines, 10)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: panics, ErrorLog: log.New(logged, "", 0)}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		io.WriteString(dial(t, listener.Addr()).Conn, plainGet)
		if line := receive(t, logged); !strings.Contains(line, "as asked") {
			t.Error(line)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		logged, ofLoop := make(lines, 10), make(lines, 10)
		handler := loophttp.New(panics, loophttp.WithServer(&http.Server{ErrorLog: log.New(logged, "", 0)}))
		server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
			quoit.WithLogger(slog.New(slog.NewTextHandler(ofLoop, &slog.HandlerOptions{Level: slog.LevelError}))))
		if err != nil {
			required.Skip(t, engine, err)
		}
		c := dial(t, server.Addr())
		io.WriteString(c.Conn, plainGet)
		if line := receive(t, ofLoop); !strings.Contains(line, "as asked") {
			t.Error(line)
		}
		c.Close()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if len(logged) > 0 {
			t.Error("the server's log has", <-logged)
		}
	})
}

// A server does not tell whether it keeps connections alive, so that those on the loop go on.
func TestKeepAlivesAreNotDisabledOnTheLoop(t *testing.T) {
	made := func() *http.Server {
		server := quietServer(func(http.ResponseWriter, *http.Request) {})
		server.SetKeepAlivesEnabled(false)
		return server
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		io.WriteString(c.Conn, plainGet)
		if response, _ := c.answer(t, "GET"); response.Close != stock {
			t.Errorf("it closes: %v", response.Close)
		}
	})
}

// net/http closes behind a body that was longer than a handler lets it be, as the rest may be long. On the loop all of it is there.
func TestABodyPastMaxBytesReaderKeepsTheConnection(t *testing.T) {
	made := func() *http.Server {
		return quietServer(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 3))
			var over *http.MaxBytesError
			fmt.Fprint(w, errors.As(err, &over))
		})
	}
	differing(t, made, nil, func(t *testing.T, address net.Addr, stock bool) {
		c := dial(t, address)
		io.WriteString(c.Conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabcdef")
		if response, body := c.answer(t, "POST"); body != "true" || response.Close != stock {
			t.Errorf("%s, it closes: %v", body, response.Close)
		}
	})
}
