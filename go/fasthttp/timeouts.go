package fasthttp

import (
	"bytes"
	"cmp"
	"net"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/limits"
	"github.com/valyala/fasthttp"
)

// limitsOf are the times of a server, with the meaning that fasthttp gives them.
func limitsOf(s *fasthttp.Server) limits.Limits {
	return limits.Limits{
		Idle:    cmp.Or(s.IdleTimeout, s.ReadTimeout),
		Head:    s.ReadTimeout,
		Request: s.ReadTimeout,
		Write:   s.WriteTimeout,
	}
}

// watchTime sets the connection's deadline, by what it waits for.
func (h *Handler) watchTime(c *quoit.Conn, from *peer) {
	from.times.Watch(c, &h.times, from.requests.Need, from.requests.Pending())
}

// OnDeadline implements quoit.DeadlineHandler. A peer that has no further request is told nothing. What fasthttp says to one
// that is too slow with a request, or with its first, it says itself. One that does not take its response is reset, as the rest of that is
// dropped.
func (h *Handler) OnDeadline(c *quoit.Conn) {
	from := c.Context().(*peer)
	switch over := from.times.Passed(c); {
	case over == limits.Writing:
		_ = c.Abort() // or it has ended
	case over == limits.None:
		h.watchTime(c, from)
	case c.Buffered() == 0 && from.kept:
		_ = c.Close() // or it has ended
	default:
		from.requests.Need = -1
		h.moveLate(c)
	}
}

// moveLate moves a connection of which a part of a request has come, or nothing of the first, in the time for it.
func (h *Handler) moveLate(c *quoit.Conn) {
	view, _ := c.Peek(c.Buffered())
	part := bytes.Clone(view)
	c.Discard(len(part))
	h.moveAs(c, nil, func(n *quoit.NetConn) net.Conn { return &late{NetConn: n, part: part} })
}

// late is a connection whose time for reading is over once what has come is read.
type late struct {
	*quoit.NetConn
	part []byte
}

func (l *late) Read(p []byte) (int, error) {
	if len(l.part) > 0 {
		n := copy(p, l.part)
		l.part = l.part[n:]
		return n, nil
	}
	_ = l.NetConn.SetReadDeadline(time.Unix(0, 1)) // fails where reading fails, too
	return l.NetConn.Read(p)
}
