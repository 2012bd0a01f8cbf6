package quoit_test

import (
	"io"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// drainsAll is a handler that is told of drains, of what it has detached too. Each connection's context is what the peer wanted.
type drainsAll struct {
	handler
	drained chan string
}

func (h *drainsAll) OnDrain(c *quoit.Conn) {
	h.drained <- c.Context().(string)
	_ = c.Close() // or the handler has, which is looked at
}

func (h *drainsAll) OnDrainDetached(*quoit.NetConn) { h.drained <- "detached" }

// After Close only OnClose follows, also when the server begins to shut down before the peer has closed.
func TestOfAClosedConnectionNoDrainIsTold(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h := &drainsAll{drained: make(chan string, 10)}
		h.data = func(c *quoit.Conn) {
			wanted, _ := c.Next(1)
			c.SetContext(string(wanted))
			c.Write(wanted)
			switch string(wanted) {
			case "c":
				c.Close()
			case "d":
				n, err := c.Detach()
				if err != nil {
					t.Error(err)
					return
				}
				n.Close()
			}
		}
		server := start(t, h, engine, quoit.WithLoops(1))
		closed, detached, open := dial(t, server.Addr()), dial(t, server.Addr()), dial(t, server.Addr())
		roundTrip(t, closed, "c")
		roundTrip(t, detached, "d")
		roundTrip(t, open, "o")
		done := make(chan struct{})
		go func() {
			defer close(done)
			shutDown(t, server)
		}()
		if _, err := open.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		for _, client := range []io.Closer{closed, detached, open} {
			client.Close()
		}
		receive(t, done)
		close(h.drained)
		for which := range h.drained {
			if which != "o" {
				t.Errorf("of %q, which was closed, the drain was told", which)
			}
		}
	})
}
