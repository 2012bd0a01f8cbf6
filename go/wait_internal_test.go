package quoit

import (
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/internal/required"
)

// forPatience ends a test that hangs; nothing depends on it otherwise.
const forPatience = 2 * time.Minute

// onEachLoop runs a test on one loop of each engine of libquoit that runs here.
func onEachLoop(t *testing.T, test func(t *testing.T, loops *Loops)) {
	for _, engine := range []Engine{EngineURing, EngineEpoll} {
		loops, err := NewLoops(WithEngine(engine), WithLoops(1), WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			continue
		}
		t.Run(engine.String(), func(t *testing.T) { test(t, loops) })
		loops.Close()
	}
}

// accepted is a connection of the loops, and its client.
func accepted(t *testing.T, loops *Loops) (*NetConn, net.Conn) {
	t.Helper()
	listener, err := Listen("tcp", "127.0.0.1:0", OnLoops(loops))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(forPatience))
	n, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.(*NetConn), client
}

// Somebody who waits on another goroutine, here for ever, must not make the loop wait for him: it alone could end that.
func TestACallOnTheLoopDoesNotWaitForAnother(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		n, _ := accepted(t, loops)
		conn, err := ListenPacket("udp", "127.0.0.1:0", OnLoops(loops))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		others := []sync.Locker{&n.reading, &n.writing, &conn.reading, &conn.writing}
		for _, other := range others {
			other.Lock()
		}
		calls := []func() error{
			func() error { _, err := n.Read(make([]byte, 1)); return err },
			func() error { _, err := n.Write(make([]byte, 1)); return err },
			func() error { _, _, err := conn.ReadFrom(make([]byte, 1)); return err },
			func() error { _, err := conn.WriteTo(make([]byte, 1), conn.LocalAddr()); return err },
		}
		results := make(chan error, len(calls))
		n.conn.Run(func(*Conn) {
			for _, call := range calls {
				results <- call()
			}
		})
		for index := range calls {
			select {
			case err := <-results:
				if !errors.Is(err, ErrOnLoop) {
					t.Error(index, err)
				}
			case <-time.After(forPatience):
				t.Error(index, "the loop waits")
			}
			others[index].Unlock()
		}
	})
}

// A loop that was given the connection before the listener was closed offers it behind that.
func TestAConnectionThatIsAcceptedBehindCloseIsAborted(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		closed, err := Listen("tcp", "127.0.0.1:0", OnLoops(loops))
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		n, client := accepted(t, loops)
		n.conn.Run(func(c *Conn) { c.sink = closed.accept(c) })
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

// noSocket is below a DatagramSocket whose datagrams come from a test.
type noSocket struct{ datagramBackend }

func (noSocket) returnLease(uint64) {}
func (noSocket) wokeSomebody()      {}

// A reader that never catches up keeps no memory for what it has read.
func TestTheQueueOfAPacketConnIsBounded(t *testing.T) {
	const behind = 8
	p := &PacketConn{readable: make(chan struct{}, 1), socket: &DatagramSocket{below: noSocket{}}}
	next := byte(0)
	receive := func() {
		packetSink{p}.received(p.socket, []received{{Datagram: Datagram{Bytes: []byte{next}}, count: 1}})
		next++
	}
	for range behind {
		receive()
	}
	for expected := range byte(200) {
		receive()
		one := make([]byte, 1)
		if _, _, wait, err := p.tryRead(one); wait || err != nil || one[0] != expected {
			t.Fatal(wait, err, one, expected)
		}
	}
	if room := cap(p.queue); room > 4*behind {
		t.Errorf("there is room for %d datagrams, though %d wait", room, behind)
	}
}

// A slow Accept, and so netutil.LimitListener of golang.org/x/net, holds peers back in the kernel's backlog, whatever accepts.
func TestASlowAcceptLeavesConnectionsToTheKernel(t *testing.T) {
	const behind = 100
	for _, test := range []struct {
		name    string
		options []Option
	}{
		{"one loop", nil},
		{"spread", []Option{WithLoops(2)}},
		{"a socket per loop", []Option{WithLoops(2), WithReusePort()}},
	} {
		for _, engine := range []Engine{EngineURing, EngineEpoll} {
			t.Run(test.name+" on "+engine.String(), func(t *testing.T) {
				l, err := Listen("tcp", "127.0.0.1:0", append(test.options, WithEngine(engine))...)
				if err != nil {
					required.Skip(t, engine, err)
				}
				defer l.Close()
				turn := func() { // all loops, so that each has carried out what it was told
					for range 3 {
						for _, loop := range l.loops.loops {
							loop.each(func(*Conn) {})
						}
					}
				}
				queued := func() int {
					l.mu.Lock()
					defer l.mu.Unlock()
					return len(l.queue)
				}
				dial := func() {
					c, err := net.Dial("tcp", l.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
				}
				for wanted := range mostQueued {
					dial()
					for deadline := time.Now().Add(forPatience); queued() <= wanted; {
						if time.Now().After(deadline) {
							t.Fatalf("%d of %d connections were accepted", queued(), wanted+1)
						}
						runtime.Gosched()
					}
				}
				turn()
				for range behind {
					dial()
				}
				turn()
				if now := queued(); now != mostQueued {
					t.Errorf("%d connections wait in the process", now)
				}
				seen := make(map[string]bool)
				for range mostQueued + behind {
					c, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					seen[c.RemoteAddr().String()] = true
					c.Close()
				}
				if len(seen) != mostQueued+behind {
					t.Errorf("%d connections of %d", len(seen), mostQueued+behind)
				}
			})
		}
	}
}

// One loop that has ended, here by itself, is left out.
func TestAListenerBehindTheEndOfALoopIsForTheOthers(t *testing.T) {
	for _, engine := range []Engine{EngineURing, EngineEpoll} {
		loops, err := NewLoops(WithEngine(engine), WithLoops(3), WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			continue
		}
		t.Run(engine.String(), func(t *testing.T) {
			loops.loops[1].end()
			for range 4 {
				accepted(t, loops)
			}
		})
		loops.Close()
	}
}
