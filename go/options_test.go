package quoit_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// TestOptionsServeTheSame runs one exchange under each option that changes how bytes move.
func TestOptionsServeTheSame(t *testing.T) {
	for name, options := range map[string][]quoit.Option{
		"reuse port":     {quoit.WithReusePort()},
		"kernel poll":    {quoit.WithKernelPoll(time.Millisecond)},
		"no buffer ring": {quoit.WithoutBufferRing()},
		"small pool":     {quoit.WithReceivePool(4, 256)},
		"one connection": {quoit.WithConnections(8), quoit.WithBacklog(16)},
		"no TCP options": {quoit.WithNoDelay(false), quoit.WithKeepAlive(0)},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, engine quoit.Option) {
				server := start(t, echoes(), append(options, engine)...)
				var clients sync.WaitGroup
				for range 4 {
					clients.Go(func() {
						connection := dial(t, server.Addr())
						for range 20 {
							roundTrip(t, connection, string(make([]byte, 1+rand.IntN(3000))))
						}
						connection.Close()
					})
				}
				clients.Wait()
			})
		})
	}
}

// With WithReusePort a second server on a port of TCP gets no error, and a Unix socket is as without it, on any number of loops.
func TestReusePort(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		first := start(t, echoes(), engine, quoit.WithReusePort())
		unix := "unix:" + filepath.Join(t.TempDir(), "socket")
		for _, address := range []string{first.Addr().String(), unix} {
			server, err := quoit.Start(address, echoes(), engine, quoit.WithReusePort(), quoit.WithLoops(2), quiet())
			if err != nil {
				t.Error(err)
				continue
			}
			for range 4 {
				client := dial(t, server.Addr())
				roundTrip(t, client, "hello")
				client.Close()
			}
			shutDown(t, server)
		}
	})
}

// What comes is more at once than the low marks let be queued, and is passed on in parts all the same.
func TestWriteToWithLowWaterMarks(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, marks := range [][2]int{{1, 0}, {100, 99}, {1000, 10}} {
			server := start(t, echoes(), engine, quoit.WithWaterMarks(marks[0], marks[1]))
			client := dial(t, server.Addr())
			roundTrip(t, client, string(make([]byte, 5000)))
			client.Close()
		}
	})
}

// TestNothingIsLostInAChaos has many goroutines do what they like with many connections; in the end nothing is left.
func TestNothingIsLostInAChaos(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		var mu sync.Mutex
		opened, closed := map[*quoit.Conn]int{}, map[*quoit.Conn]int{}
		h := echoes()
		h.open = func(c *quoit.Conn) {
			mu.Lock()
			defer mu.Unlock()
			opened[c]++
		}
		h.closed = func(c *quoit.Conn, _ error) {
			mu.Lock()
			defer mu.Unlock()
			closed[c]++
		}
		server := start(t, h, engine, quoit.WithReceivePool(16, 1024), quoit.WithWaterMarks(4096, 1024))
		any := func() *quoit.Conn {
			mu.Lock()
			defer mu.Unlock()
			for c := range opened {
				return c
			}
			return nil
		}
		var chaos sync.WaitGroup
		for range 8 {
			chaos.Go(func() {
				for range 60 {
					client, err := net.Dial("tcp", server.Addr().String())
					if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
						continue // it was aborted at once
					}
					if err != nil {
						t.Error(err)
						return
					}
					client.SetDeadline(time.Now().Add(patience))
					client.Write(make([]byte, rand.IntN(20_000)))
					if rand.IntN(2) == 0 {
						io.ReadFull(client, make([]byte, 1)) // it may be aborted meanwhile
					}
					if rand.IntN(3) == 0 {
						client.(*net.TCPConn).SetLinger(0)
					}
					client.Close()
				}
			})
			chaos.Go(func() {
				for range 300 {
					c := any()
					if c == nil {
						continue
					}
					switch rand.IntN(8) {
					case 0:
						c.Close()
					case 1:
						c.Abort()
					case 2:
						c.CloseWrite()
					case 3:
						c.SetDeadline(time.Now().Add(time.Duration(rand.IntN(3)) * time.Millisecond))
					case 4:
						c.Run(h.data)
					default:
						_, err := c.Write(make([]byte, rand.IntN(5000)))
						if err != nil && !errors.Is(err, net.ErrClosed) && err != quoit.ErrFull && err != quoit.ErrTooLarge {
							t.Error(err)
						}
					}
				}
			})
		}
		chaos.Wait()
		shutDown(t, server)
		if len(opened) != len(closed) || server.Connections() != 0 {
			t.Errorf("%d opened, %d closed, %d left", len(opened), len(closed), server.Connections())
		}
		for c, count := range closed {
			if count != 1 || opened[c] != 1 {
				t.Errorf("one was opened %d times and closed %d times", opened[c], count)
			}
		}
	})
}
