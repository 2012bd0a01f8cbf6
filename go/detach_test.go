package quoit_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// A connection that is paused, as its handler has left too much unread, receives again once that was consumed: also where what
// consumes it is not OnData, and leaves the rest, or nothing, to a net.Conn.
func TestANetConnMadeWhileReceivingIsPausedReceives(t *testing.T) {
	const limit = 1000
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, callback := range []string{"run", "deadline"} {
			for _, left := range []int{0, 1, limit / 2, limit/2 + 1, limit} {
				t.Run(fmt.Sprintf("%s, %d left", callback, left), func(t *testing.T) {
					detached := make(chan struct{})
					detach := func(c *quoit.Conn) {
						c.Discard(limit - left)
						n, err := c.Detach()
						if err != nil {
							t.Error(err)
							return
						}
						close(detached)
						go io.Copy(n, n)
					}
					h := &drainingHandler{deadline: detach, drain: func(c *quoit.Conn) { c.Close() }, ended: func(c *quoit.Conn) { c.Close() }}
					h.data = func(c *quoit.Conn) {
						switch {
						case c.Buffered() < limit:
						case callback == "run":
							c.Run(detach)
						default:
							c.SetDeadline(time.Now())
						}
					}
					client := dial(t, start(t, h, engine, quoit.WithInboundLimit(limit)).Addr())
					io.WriteString(client, strings.Repeat("a", limit))
					receive(t, detached)
					io.WriteString(client, "x")
					want := strings.Repeat("a", left) + "x"
					answer := make([]byte, len(want))
					if n, err := io.ReadFull(client, answer); string(answer) != want {
						t.Errorf("%d of %d bytes came back: %v", n, len(want), err)
					}
				})
			}
		}
	})
}

// drainsDetached is a handler that is told of drains of what it has detached.
type drainsDetached struct {
	handler
	drain func(n *quoit.NetConn)
}

func (h *drainsDetached) OnDrainDetached(n *quoit.NetConn) { h.drain(n) }

// What a handler has detached is not its own any more: how it ends then is nothing to the connection, but where it is told of a drain.
func TestAHandlerThatEndsBehindADetachEndsNothing(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("as asked") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, engine quoit.Option) {
				h := &drainsDetached{drain: func(*quoit.NetConn) { end() }}
				h.open = func(c *quoit.Conn) {
					n, err := c.Detach()
					if err != nil {
						t.Error(err)
						return
					}
					go io.Copy(n, n)
					end()
				}
				server, err := quoit.Start("127.0.0.1:0", h, engine, quoit.WithLoops(1), quiet())
				if err != nil {
					t.Fatal(err)
				}
				client := dial(t, server.Addr())
				roundTrip(t, client, "before")
				roundTrip(t, dial(t, server.Addr()), "of another")
				roundTrip(t, client, "after")
				shutDown(t, server) // nothing else ends the connections
			})
		})
	}
}
