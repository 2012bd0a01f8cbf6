package quoit_test

import (
	"io"
	"net"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// After Close only OnClose follows, also when a deadline passes before the peer has closed.
func TestADeadlineIsForgottenWithClose(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, decides := range []bool{true, false} {
			clock := make(chan struct{}, 1)
			closed := make(chan error, 2)
			h := &handler{
				data: func(c *quoit.Conn) {
					// The one that closes is the first whose deadline passes.
					view, _ := c.Next(1)
					if string(view) == "c" {
						c.SetDeadline(time.Now())
						c.Write([]byte("x"))
						c.Close()
					} else {
						c.SetDeadline(time.Now().Add(50 * time.Millisecond))
					}
				},
				closed: func(_ *quoit.Conn, err error) { closed <- err },
			}
			var served quoit.Handler = h
			if decides {
				served = &deadlineHandler{h, func(c *quoit.Conn) {
					if c.IsClosed() {
						t.Error("OnDeadline after Close")
						return
					}
					clock <- struct{}{}
				}}
			}
			server := start(t, served, engine, quoit.WithLoops(1), quoit.WithCloseLimit(patience))
			client, later := dial(t, server.Addr()), dial(t, server.Addr())
			io.WriteString(client, "c")
			if text, err := io.ReadAll(client); string(text) != "x" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			io.WriteString(later, "l")
			if decides {
				receive(t, clock)
			} else {
				io.Copy(io.Discard, later) // it is aborted
				if err := receive(t, closed); err == nil {
					t.Error("a deadline has ended nothing")
				}
			}
			client.(*net.TCPConn).CloseWrite()
			if err := receive(t, closed); err != nil {
				t.Errorf("a deadline is decided about %v, and a connection that was closed before ends with %v", decides, err)
			}
		}
	})
}

// deadlineHandler is a handler that decides what its deadlines mean.
type deadlineHandler struct {
	*handler
	deadline func(c *quoit.Conn)
}

func (h *deadlineHandler) OnDeadline(c *quoit.Conn) { h.deadline(c) }
