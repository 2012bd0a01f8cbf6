package quoit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// detaches is a Handler that makes a net.Conn of each connection, and of those that it is told of only when the peer has
// ended.
type detaches struct {
	handler
	to chan *quoit.NetConn
}

func (d *detaches) OnEndOfStream(c *quoit.Conn) { d.take(c) }

func (d *detaches) take(c *quoit.Conn) {
	n, err := c.Detach()
	if err != nil {
		panic(err)
	}
	d.to <- n
}

// fill writes until nothing more is taken, and has been waited for in vain.
func fill(t *testing.T, write func() error) {
	t.Helper()
	var err error
	for err == nil {
		err = write()
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// The end had come before the net.Conn was made, and comes no second time.
func TestANetConnMadeAtTheEndOfStreamReadsTheEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		d := &detaches{to: make(chan *quoit.NetConn, 1)}
		d.data = func(*quoit.Conn) {} // is left for the net.Conn
		server := start(t, d, engine)
		client := dial(t, server.Addr()).(*net.TCPConn)
		io.WriteString(client, "all there is")
		client.CloseWrite()
		n := receive(t, d.to)
		n.SetDeadline(time.Now().Add(patience))
		if all, err := io.ReadAll(n); string(all) != "all there is" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
		io.WriteString(n, "and this back")
		n.Close()
		if all, err := io.ReadAll(client); string(all) != "and this back" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// What the peer does not take is dropped when the time is over, and the connection with it.
func TestACloseEndsWhoseBytesNobodyTakes(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		d := &detaches{to: make(chan *quoit.NetConn, 1)}
		d.open = d.take
		closeLimit := quoit.WithCloseLimit(50 * time.Millisecond)
		server := start(t, d, engine, closeLimit)
		dial(t, server.Addr())
		n := receive(t, d.to)
		n.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		fill(t, func() error {
			_, err := n.Write(make([]byte, 1<<20))
			return err
		})
		n.Close()
		shutDown(t, server) // waits for the connection
	})
}

// Only the loop could end the wait.
func TestAListenerIsClosedOnItsLoop(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
		if err != nil {
			t.Fatal(err)
		}
		defer loops.Close()
		listener := listen(t, quoit.OnLoops(loops))
		server := start(t, &handler{data: func(c *quoit.Conn) {
			listener.Close()
			c.WriteTo(c)
		}}, quoit.OnLoops(loops))
		roundTrip(t, dial(t, server.Addr()), "closed?")
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// streamConn is what a net.TCPConn and a NetConn have in common.
type streamConn interface {
	net.Conn
	CloseWrite() error
}

// asPackageNet runs a test with a connection of package net's, which says what is right, and on each engine with one
// that was detached.
func asPackageNet(t *testing.T, test func(t *testing.T, conn streamConn)) {
	t.Run("net", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		test(t, conn.(*net.TCPConn))
	})
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		d := &detaches{to: make(chan *quoit.NetConn, 1)}
		d.open = d.take
		dial(t, start(t, d, engine).Addr())
		conn := receive(t, d.to)
		defer conn.Abort()
		test(t, conn)
	})
}

func TestTheSendingDirectionMayBeClosedTwice(t *testing.T) {
	asPackageNet(t, func(t *testing.T, conn streamConn) {
		for range 2 {
			if err := conn.CloseWrite(); err != nil {
				t.Error(err)
			}
		}
		if _, err := io.WriteString(conn, "too late"); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write behind it: %v", err)
		}
		conn.Close()
		if err := conn.CloseWrite(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("behind Close: %v", err)
		}
	})
}

func TestAReadOfNothingWaitsForNothing(t *testing.T) {
	asPackageNet(t, func(t *testing.T, conn streamConn) {
		conn.SetReadDeadline(time.Unix(1, 0))
		if n, err := conn.Read(nil); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		conn.Close()
		if _, err := conn.Read(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("behind Close: %v", err)
		}
	})
}

// What was written leaves before the loops end, which Close of the connection and the listener does not wait for.
func TestAListenersShutdownWaitsForWhatWasWritten(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		client := dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// More than the kernel takes while nobody reads.
		written := 0
		conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		fill(t, func() error {
			count, err := conn.Write(make([]byte, 1<<20))
			written += count
			return err
		})
		conn.Close()
		done := make(chan error, 1)
		go func() { done <- listener.Shutdown(t.Context()) }()
		if all, err := io.Copy(io.Discard, client); err != nil || all != int64(written) {
			t.Errorf("%d of %d bytes, %v", all, written, err)
		}
		client.Close()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestAListenersShutdownAbortsWhenItsContextEnds(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		client := dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer runtime.KeepAlive(conn) // one that was forgotten is closed in order
		over, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- listener.Shutdown(over) }()
		cancel()
		if err := receive(t, done); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

// resetBeforeAccept is how many connections of this network the kernel has given up as their reset came before the last packet
// of the handshake, so that there was nothing to accept (TcpExtEmbryonicRsts of netstat(8)).
func resetBeforeAccept(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	at := slices.Index(strings.Fields(lines[0]), "EmbryonicRsts")
	if at < 0 {
		t.Fatalf("EmbryonicRsts is not in %q", lines[0])
	}
	count, err := strconv.Atoi(strings.Fields(lines[1])[at])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// As accept tells it, however soon the reset comes. A peer that stays says when all others have been seen.
func TestTheAddressOfAPeerThatHasResetIsKnown(t *testing.T) {
	onListeners(t, func(t *testing.T, listener net.Listener, _ *quoit.Loops) {
		defer time.AfterFunc(patience, func() { listener.Close() }).Stop()
		const rounds = 50
		before := resetBeforeAccept(t)
		expected := make(map[string]bool)
		for range rounds {
			peer := dial(t, listener.Addr()).(*net.TCPConn)
			expected[peer.LocalAddr().String()] = true
			if err := peer.SetLinger(0); err != nil {
				t.Fatal(err)
			}
			peer.Close()
		}
		last := dial(t, listener.Addr())
		if _, err := io.WriteString(last, "x"); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for {
			connection, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			peer := connection.RemoteAddr()
			connection.Close()
			if peer != nil && peer.String() == last.LocalAddr().String() {
				break
			}
			seen++
			if peer == nil || !expected[peer.String()] {
				t.Errorf("the peer is %v", peer)
			}
		}
		if lost := resetBeforeAccept(t) - before; seen+lost < rounds {
			t.Errorf("of %d that have reset %d were accepted, and the kernel has given up %d", rounds, seen, lost)
		}
	})
}

// After Close only OnClose follows, also when what waits to be sent turns out to be in vain while a write waits for room.
func TestOfAClosedConnectionNoRoomIsTold(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		room, full, closed := make(chan struct{}, 1), make(chan *quoit.Conn, 1), make(chan error, 1)
		var fill func(c *quoit.Conn)
		fill = func(c *quoit.Conn) {
			for range 10 {
				if _, err := c.Write(make([]byte, 1000)); err != nil {
					if err != quoit.ErrFull {
						t.Error(err)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					full <- c
					return
				}
			}
			c.Run(fill)
		}
		server, err := quoit.Start("unix:"+filepath.Join(t.TempDir(), "socket"), &handler{
			open:     fill,
			writable: func(*quoit.Conn) { room <- struct{}{} },
			closed:   func(_ *quoit.Conn, err error) { closed <- err },
		}, engine, quiet(), quoit.WithWaterMarks(32<<10, 8<<10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shutDown(t, server) })
		client := dial(t, server.Addr()).(*net.UnixConn)
		c := receive(t, full)
		// It receives no more, and may still send, so that the connection goes on.
		if err := client.CloseRead(); err != nil {
			t.Fatal(err)
		}
		// What had come is still there. Reading it makes room, and whoever waits for that finds out.
		if _, err := io.Copy(io.Discard, client); err != nil {
			t.Error(err)
		}
		for limit := time.Now().Add(patience); c.Queued() > 0; runtime.Gosched() {
			if time.Now().After(limit) {
				t.Fatal("what cannot be sent is still queued")
			}
		}
		client.Close()
		receive(t, closed)
		if len(room) > 0 {
			t.Error("OnWritable was called after Close")
		}
	})
}
