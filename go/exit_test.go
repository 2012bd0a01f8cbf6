package quoit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// drainingHandler is a handler that is told of drains, and of ends.
type drainingHandler struct {
	handler
	drain    func(c *quoit.Conn)
	ended    func(c *quoit.Conn)
	deadline func(c *quoit.Conn)
}

func (h *drainingHandler) OnDrain(c *quoit.Conn) { h.drain(c) }

func (h *drainingHandler) OnEndOfStream(c *quoit.Conn) { h.ended(c) }

func (h *drainingHandler) OnDeadline(c *quoit.Conn) { h.deadline(c) }

// A handler that calls runtime.Goexit, as t.FailNow does, ends its connection, and nobody else's: as under net/http, where it
// ends the connection's goroutine.
func TestGoexitInEachCallback(t *testing.T) { endInEachCallback(t, runtime.Goexit) }

// So does one that panics.
func TestAPanicInEachCallback(t *testing.T) { endInEachCallback(t, func() { panic("as asked") }) }

func endInEachCallback(t *testing.T, end func()) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, callback := range []string{"open", "data", "ended", "closed", "tick", "run", "drain", "writable", "deadline"} {
			t.Run(callback, func(t *testing.T) {
				victim := make(chan net.Addr, 1)
				closed := make(chan error, 8)
				isVictim := func(c *quoit.Conn) bool {
					select {
					case address := <-victim:
						victim <- address
						return address.String() == c.RemoteAddr().String()
					default:
						return false
					}
				}
				exits := func(in string) func(c *quoit.Conn) {
					return func(c *quoit.Conn) {
						if callback == in && isVictim(c) {
							end()
						}
					}
				}
				h := &drainingHandler{drain: func(c *quoit.Conn) { exits("drain")(c); _ = c.Close() }}
				h.ended = func(c *quoit.Conn) { exits("ended")(c); _ = c.Close() }
				h.deadline = exits("deadline")
				h.writable = exits("writable")
				h.open = exits("open")
				h.data = func(c *quoit.Conn) {
					exits("data")(c)
					if callback == "run" && isVictim(c) {
						_ = c.Run(func(*quoit.Conn) { end() })
					}
					if callback == "deadline" && isVictim(c) {
						_ = c.SetDeadline(time.Now())
					}
					for err := error(nil); err == nil && callback == "writable" && isVictim(c); {
						_, err = c.Write(make([]byte, 64<<10))
					}
					_, _ = c.WriteTo(c)
				}
				h.closed = func(c *quoit.Conn, err error) {
					if isVictim(c) {
						closed <- err
					}
					exits("closed")(c)
				}
				ticked := make(chan struct{})
				h.tick = func(int) time.Duration {
					if callback == "tick" {
						close(ticked)
						end()
					}
					return 0
				}
				server, err := quoit.Start("127.0.0.1:0", h, engine, quoit.WithLoops(1), quiet())
				if err != nil {
					t.Fatal(err)
				}
				if callback == "tick" {
					<-ticked
				}
				other := dial(t, server.Addr())
				roundTrip(t, other, "before")
				first, err := dialFrom(t, server.Addr(), victim)
				if callback == "open" && errors.Is(err, syscall.ECONNRESET) {
					// It was reset before it could be looked at.
					first = dial(t, server.Addr())
					_ = first.Close()
				} else if err != nil {
					t.Fatal(err)
				}
				defer first.Close()
				_ = first.SetDeadline(time.Now().Add(patience))
				_, _ = io.WriteString(first, "x")
				if callback == "ended" || callback == "closed" || callback == "drain" {
					// The server has it.
					if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				switch callback {
				case "open", "data", "run", "writable", "deadline":
					if _, err := io.Copy(io.Discard, first); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
						t.Error("it does not end:", err)
					}
					if err := receive(t, closed); !errors.Is(err, quoit.ErrPanicked) {
						t.Error(err)
					}
				case "ended":
					_ = first.(*net.TCPConn).CloseWrite()
					if err := receive(t, closed); !errors.Is(err, quoit.ErrPanicked) {
						t.Error(err)
					}
				case "closed":
					_ = first.Close()
					receive(t, closed)
				}
				for range 3 {
					roundTrip(t, other, "after")
				}
				_ = other.Close()
				if callback != "drain" {
					_ = first.Close()
				}
				if err := server.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if callback == "drain" {
					if err := receive(t, closed); !errors.Is(err, quoit.ErrPanicked) {
						t.Error(err)
					}
				}
			})
		}
	})
}

// dialFrom dials from an address that it tells before.
func dialFrom(t *testing.T, to net.Addr, victim chan net.Addr) (net.Conn, error) {
	for {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: freePort(t)}
		victim <- from
		connection, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", to.String())
		if !errors.Is(err, syscall.EADDRINUSE) {
			return connection, err
		}
		<-victim // somebody else was faster
	}
}

// freePort is a port that nobody has at the moment.
func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// What a handler ends by is told to the logger of its server, also where the loops were made with another.
func TestWhatAHandlerEndsByIsToldToTheLoggerOfItsServer(t *testing.T) {
	for name, end := range map[string]func(c *quoit.Conn){
		"panic":               func(*quoit.Conn) { panic("as asked") },
		"panic of a function": func(c *quoit.Conn) { c.Run(func(*quoit.Conn) { panic("as asked") }) },
		"exit":                func(*quoit.Conn) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, engine quoit.Option) {
				loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = loops.Close() })
				var said bytes.Buffer
				closed := make(chan error, 1)
				server := start(t, &handler{
					data:   end,
					closed: func(_ *quoit.Conn, err error) { closed <- err },
				}, quoit.OnLoops(loops), quoit.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
				io.WriteString(dial(t, server.Addr()), "x")
				if err := receive(t, closed); err != quoit.ErrPanicked {
					t.Error(err)
				}
				shutDown(t, server)
				if !strings.Contains(said.String(), "connection is ended") {
					t.Errorf("%q", said.String())
				}
			})
		})
	}
}
