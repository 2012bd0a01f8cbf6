package quoit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

func shutDown(t *testing.T, server *quoit.Server) {
	t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(limit); err != nil && !errors.Is(err, quoit.ErrShutdown) {
		t.Errorf("shutting down: %v", err)
	}
}

func TestEcho(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine)
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				connection := dial(t, server.Addr())
				for range 20 {
					roundTrip(t, connection, strings.Repeat("hello ", 1+rand.IntN(200)))
				}
			})
		}
		clients.Wait()
	})
}

func TestMegabytesKeepTheirOrderUnderBackPressure(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine, quoit.WithWaterMarks(32<<10, 8<<10), quoit.WithInboundLimit(16<<10))
		connection := dial(t, server.Addr()).(*net.TCPConn)
		sent := make([]byte, 8<<20)
		for index := range sent {
			sent[index] = byte(rand.Uint32())
		}
		go func() {
			connection.Write(sent)
			connection.CloseWrite()
		}()
		// Nothing is read until the server can take no more.
		came := make([]byte, len(sent))
		if _, err := io.ReadFull(connection, came); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(sent, came) {
			t.Fatal("what came back differs")
		}
	})
}

func TestAUnixSocketIsServed(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		path := filepath.Join(t.TempDir(), "socket")
		server, err := quoit.Start("unix:"+path, echoes(), engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		connection := dial(t, server.Addr())
		roundTrip(t, connection, "hello")
		connection.Close()
		shutDown(t, server)
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket's file is left")
		}
	})
}

func TestPeekNextAndDiscard(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		// Lines, cut from whatever arrives, come back with their length before them.
		server := start(t, &handler{data: func(c *quoit.Conn) {
			for {
				view, err := c.Peek(c.Buffered())
				end := bytes.IndexByte(view, '\n')
				if err != nil || end < 0 {
					return
				}
				line, err := c.Next(end + 1)
				if err != nil || len(line) != end+1 {
					t.Error("Next does not answer what Peek has shown")
				}
				c.Write([]byte{byte(end)})
				c.Write(line)
			}
		}}, engine)
		connection := dial(t, server.Addr())
		for _, part := range []string{"on", "e\ntw", "o", "\n", "three\n"} {
			io.WriteString(connection, part)
			if part == "\n" || part == "e\ntw" {
				want := map[string]string{"e\ntw": "\x03one\n", "\n": "\x03two\n"}[part]
				answer := make([]byte, len(want))
				if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != want {
					t.Fatalf("%q, %v", answer, err)
				}
			}
		}
		answer := make([]byte, 7)
		if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != "\x05three\n" {
			t.Fatalf("%q, %v", answer, err)
		}
	})
}

func TestReadAnswersWhatIsThere(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		results := make(chan error, 1)
		server := start(t, &handler{data: func(c *quoit.Conn) {
			buffer := make([]byte, 100)
			n, err := c.Read(buffer)
			if n != 5 || err != nil || c.Buffered() != 0 {
				t.Errorf("%d, %v", n, err)
			}
			_, err = c.Read(buffer)
			results <- err
		}}, engine)
		io.WriteString(dial(t, server.Addr()), "hello")
		if err := receive(t, results); err != quoit.ErrNoData {
			t.Error(err)
		}
	})
}

func TestWritesFromAnyGoroutine(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		connections := make(chan *quoit.Conn, 1)
		server := start(t, &handler{open: func(c *quoit.Conn) { connections <- c }}, engine)
		client := dial(t, server.Addr())
		c := receive(t, connections)
		const writers, writes = 8, 500
		for writer := range writers {
			go func() {
				for range writes {
					for {
						_, err := c.Write([]byte{byte(writer)})
						if err == nil {
							break
						}
					}
				}
			}()
		}
		all := make([]byte, writers*writes)
		if _, err := io.ReadFull(client, all); err != nil {
			t.Fatal(err)
		}
		for writer := range writers {
			if count := bytes.Count(all, []byte{byte(writer)}); count != writes {
				t.Errorf("%d of %d came from writer %d", count, writes, writer)
			}
		}
	})
}

func TestAFullQueueRefusesAndTells(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		full, writable := make(chan int, 1), make(chan struct{}, 1)
		piece := bytes.Repeat([]byte("x"), 1000)
		var written atomic.Int64
		server := start(t, &handler{
			open: func(c *quoit.Conn) {
				if _, err := c.Write(make([]byte, 40<<10)); err != quoit.ErrTooLarge {
					t.Error(err)
				}
				var fill func(c *quoit.Conn)
				fill = func(c *quoit.Conn) {
					for range 10 {
						n, err := c.Write(piece)
						written.Add(int64(n))
						if err != nil {
							if err != quoit.ErrFull {
								t.Error(err)
							}
							if queued := c.Queued(); queued > 32<<10 {
								t.Errorf("%d bytes are queued", queued)
							}
							full <- 0
							return
						}
					}
					c.Run(fill)
				}
				fill(c)
			},
			writable: func(c *quoit.Conn) {
				select {
				case writable <- struct{}{}:
				default:
				}
				c.Close()
			},
		}, engine, quoit.WithWaterMarks(32<<10, 8<<10))
		client := dial(t, server.Addr())
		receive(t, full)
		came, err := io.Copy(io.Discard, client)
		if err != nil || came != written.Load() {
			t.Errorf("%d of %d bytes came: %v", came, written.Load(), err)
		}
		receive(t, writable)
	})
}

func TestCloseLetsEverythingLeaveFirst(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan error, 1)
		server := start(t, &handler{
			open: func(c *quoit.Conn) {
				c.Write(bytes.Repeat([]byte("y"), 200<<10))
				c.Close()
				if _, err := c.Write([]byte("late")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a write after the close: %v", err)
				}
				if err := c.Close(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a second close: %v", err)
				}
			},
			closed: func(_ *quoit.Conn, err error) { closed <- err },
		}, engine)
		client := dial(t, server.Addr())
		came, err := io.Copy(io.Discard, client)
		if came != 200<<10 || err != nil {
			t.Errorf("%d bytes came: %v", came, err)
		}
		client.Close()
		if err := receive(t, closed); err != nil {
			t.Errorf("the end was in order, but OnClose was told %v", err)
		}
	})
}

func TestAbortResets(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan error, 1)
		server := start(t, &handler{
			data:   func(c *quoit.Conn) { c.Abort() },
			closed: func(_ *quoit.Conn, err error) { closed <- err },
		}, engine)
		client := dial(t, server.Addr())
		io.WriteString(client, "x")
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer sees %v", err)
		}
		if err := receive(t, closed); err != nil {
			t.Error(err)
		}
	})
}

func TestAPeersResetIsTold(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan error, 1)
		server := start(t, &handler{closed: func(_ *quoit.Conn, err error) { closed <- err }}, engine)
		client := dial(t, server.Addr()).(*net.TCPConn)
		client.SetLinger(0)
		client.Close()
		if err := receive(t, closed); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

// halfCloser answers only when the peer has ended its direction.
type halfCloser struct {
	handler
	got bytes.Buffer
}

func (h *halfCloser) OnEndOfStream(c *quoit.Conn) {
	c.Write(bytes.ToUpper(h.got.Bytes()))
	c.Close()
}

func TestAHalfClosedConnectionStillSends(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h := &halfCloser{}
		h.data = func(c *quoit.Conn) { c.WriteTo(&h.got) }
		client := dial(t, start(t, h, engine).Addr()).(*net.TCPConn)
		io.WriteString(client, "hello")
		client.CloseWrite()
		if answer, err := io.ReadAll(client); string(answer) != "HELLO" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

func TestADeadlineAborts(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan error, 1)
		server := start(t, &handler{
			open:   func(c *quoit.Conn) { c.SetDeadline(time.Now().Add(time.Hour)) },
			data:   func(c *quoit.Conn) { c.SetDeadline(time.Now()) },
			closed: func(_ *quoit.Conn, err error) { closed <- err },
		}, engine)
		io.WriteString(dial(t, server.Addr()), "x")
		if err := receive(t, closed); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestAPanicClosesItsConnectionOnly(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h, closed := echoes(), make(chan error, 1)
		echo := h.data
		h.data = func(c *quoit.Conn) {
			if view, _ := c.Peek(1); view[0] == '!' {
				panic("as asked")
			}
			echo(c)
		}
		h.closed = func(_ *quoit.Conn, err error) { closed <- err }
		server := start(t, h, engine, quoit.WithLoops(1))
		other := dial(t, server.Addr())
		roundTrip(t, other, "before")
		io.WriteString(dial(t, server.Addr()), "!")
		if err := receive(t, closed); err != quoit.ErrPanicked {
			t.Error(err)
		}
		roundTrip(t, other, "after")
	})
}

func TestUseAfterTheEndIsAnErrorValue(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan *quoit.Conn, 1)
		server := start(t, &handler{closed: func(c *quoit.Conn, _ error) { closed <- c }}, engine)
		dial(t, server.Addr()).Close()
		c := receive(t, closed)
		for name, call := range map[string]func() error{
			"Write":       func() error { _, err := c.Write([]byte("x")); return err },
			"CloseWrite":  c.CloseWrite,
			"Close":       c.Close,
			"Abort":       c.Abort,
			"SetDeadline": func() error { return c.SetDeadline(time.Now()) },
		} {
			if err := call(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c.RemoteAddr() == nil || !c.IsClosed() {
			t.Error("the connection has forgotten its peer")
		}
	})
}

func TestAForgottenConsumerStopsItsPeerOnly(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		connections := make(chan *quoit.Conn, 1)
		var forgetful atomic.Bool
		forgetful.Store(true)
		h := &handler{}
		h.data = func(c *quoit.Conn) {
			if c.Context() == nil {
				c.SetContext("known")
				select {
				case connections <- c:
				default:
				}
			}
			if !forgetful.Load() {
				c.Discard(c.Buffered())
			}
		}
		server := start(t, h, engine, quoit.WithLoops(1))
		client := dial(t, server.Addr())
		done := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 32<<20))
			done <- err
		}()
		c := receive(t, connections)
		// It keeps to its limit, and another connection of the loop is served.
		forgetful.Store(false)
		io.WriteString(dial(t, server.Addr()), "x")
		c.Run(func(c *quoit.Conn) { c.Discard(c.Buffered()) })
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	})
}

func TestTicks(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		ticks := make(chan int, 100)
		var counts [2]atomic.Int32
		start(t, &handler{tick: func(loop int) time.Duration {
			ticks <- loop
			if counts[loop].Add(1) == 3 {
				return 0
			}
			return time.Millisecond
		}}, engine)
		seen := map[int]int{}
		for range 6 {
			seen[receive(t, ticks)]++
		}
		if seen[0] != 3 || seen[1] != 3 {
			t.Errorf("loops ticked: %v", seen)
		}
	})
}

// patient ends its connections itself when the server shuts down.
type patient struct {
	*handler
	draining chan *quoit.Conn
}

func (p patient) OnDrain(c *quoit.Conn) { p.draining <- c }

func TestShutdownIsGraceful(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h := patient{echoes(), make(chan *quoit.Conn, 1)}
		server := start(t, h, engine)
		client := dial(t, server.Addr())
		roundTrip(t, client, "before")
		done := make(chan error, 1)
		go func() { done <- server.Shutdown(t.Context()) }()
		c := receive(t, h.draining)
		if _, err := net.Dial("tcp", server.Addr().String()); err == nil {
			t.Error("it still accepts")
		}
		roundTrip(t, client, "meanwhile")
		c.Write([]byte("bye"))
		c.Close()
		if rest, err := io.ReadAll(client); string(rest) != "bye" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		client.Close()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownAbortsWhenItsContextEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h := patient{echoes(), make(chan *quoit.Conn, 1)}
		server := start(t, h, engine)
		client := dial(t, server.Addr())
		roundTrip(t, client, "before")
		over, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Shutdown(over) }()
		receive(t, h.draining)
		cancel()
		if err := receive(t, done); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		ctx, cancel := context.WithCancel(t.Context())
		done, ticked := make(chan error, 1), make(chan struct{}, 10)
		h := &handler{tick: func(int) time.Duration { ticked <- struct{}{}; return 0 }}
		go func() { done <- quoit.Serve(ctx, "127.0.0.1:0", h, engine, quiet(), quoit.WithLoops(1)) }()
		receive(t, ticked)
		cancel()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine)
		_, err := quoit.Start(server.Addr().String(), echoes(), engine, quiet())
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), server.Addr().String()) {
			t.Error(err)
		}
	})
}

func TestBadOptionsAreNamed(t *testing.T) {
	for want, option := range map[string]quoit.Option{
		"WithLoops":        quoit.WithLoops(0),
		"WithWaterMarks":   quoit.WithWaterMarks(10, 20),
		"WithInboundLimit": quoit.WithInboundLimit(0),
		"WithConnections":  quoit.WithConnections(-1),
		"WithReceivePool":  quoit.WithReceivePool(1<<20, 16),
		"WithCloseLimit":   quoit.WithCloseLimit(0),
	} {
		if _, err := quoit.NewLoops(option); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
