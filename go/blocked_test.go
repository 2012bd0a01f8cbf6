package quoit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// blocking is a Handler whose callback for "block" lasts until it is released. It answers others by the number of
// their loop.
type blocking struct {
	quoit.BaseHandler
	entered  chan struct{}
	release  chan struct{}
	released atomic.Bool
	later    chan bool // for each "later": whether it came after the release
	drained  chan int  // the loop of each connection that is told to end
}

func newBlocking() *blocking {
	return &blocking{
		entered: make(chan struct{}), release: make(chan struct{}), later: make(chan bool, 1), drained: make(chan int, 8),
	}
}

func (b *blocking) OnData(c *quoit.Conn) {
	view, _ := c.Next(c.Buffered())
	switch string(view) {
	case "block":
		b.entered <- struct{}{}
		<-b.release
	case "later":
		b.later <- b.released.Load()
	default:
		fmt.Fprint(c, c.Loop())
	}
}

func (b *blocking) OnDrain(c *quoit.Conn) {
	b.drained <- c.Loop()
	c.Close()
}

func (b *blocking) end() {
	b.released.Store(true)
	close(b.release)
}

// askLoop returns the number of the connection's loop.
func askLoop(t *testing.T, c net.Conn) int {
	t.Helper()
	number := make([]byte, 1)
	if _, err := io.WriteString(c, "?"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, number); err != nil {
		t.Fatal(err)
	}
	return int(number[0] - '0')
}

// twoOnEach opens connections until both loops have two.
func twoOnEach(t *testing.T, address net.Addr) [2][]net.Conn {
	t.Helper()
	var on [2][]net.Conn
	for range 100 {
		if len(on[0]) >= 2 && len(on[1]) >= 2 {
			return on
		}
		c := dial(t, address)
		loop := askLoop(t, c)
		on[loop] = append(on[loop], c)
	}
	t.Fatal("one loop gets all connections")
	panic("unreachable")
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func TestABlockedHandlerHoldsUpItsLoopOnly(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		handler := newBlocking()
		on := twoOnEach(t, start(t, handler, engine).Addr())
		send(t, on[0][0], "block")
		receive(t, handler.entered)
		send(t, on[0][1], "later")
		for range 100 {
			for _, c := range on[1] {
				if loop := askLoop(t, c); loop != 1 {
					t.Error(loop)
				}
			}
		}
		handler.end()
		if !receive(t, handler.later) {
			t.Error("another callback of the loop has run meanwhile")
		}
		if loop := askLoop(t, on[0][0]); loop != 0 {
			t.Error(loop)
		}
	})
}

func TestShutdownWaitsForACallbackUnderWay(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		handler := newBlocking()
		server, err := quoit.Start("127.0.0.1:0", handler, quiet(), quoit.WithLoops(2), engine)
		if err != nil {
			t.Fatal(err)
		}
		on := twoOnEach(t, server.Addr())
		send(t, on[1][0], "block")
		receive(t, handler.entered)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		type end struct {
			err   error
			after bool
		}
		ended := make(chan end, 1)
		go func() {
			err := server.Shutdown(over)
			ended <- end{err, handler.released.Load()}
		}()
		// The loops are told in turn, so that by now the blocked one is waited for.
		for range on[0] {
			receive(t, handler.drained)
		}
		handler.end()
		if got := receive(t, ended); !got.after || !errors.Is(got.err, context.Canceled) {
			t.Error(got)
		}
	})
}
