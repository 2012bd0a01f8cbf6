package loophttp

import (
	"cmp"
	"net/http"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/limits"
)

// limitsOf are the times of a server, with the meaning that net/http gives them.
func limitsOf(s *http.Server) limits.Limits {
	return limits.Limits{
		Idle:    cmp.Or(s.IdleTimeout, s.ReadTimeout),
		Head:    cmp.Or(s.ReadHeaderTimeout, s.ReadTimeout),
		Request: s.ReadTimeout,
		Write:   s.WriteTimeout,
	}
}

// watchTime sets the connection's deadline, by what it waits for.
func (h *Handler) watchTime(c *quoit.Conn, known *state) {
	known.times.Watch(c, &h.times, known.requests.Need, known.requests.Pending())
}

// tooSlow is what net/http sends to a peer of which a part of a head has come in time.
const tooSlow = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"

// OnDeadline implements quoit.DeadlineHandler: a peer that has no request is told nothing, and its connection is closed.
// One that does not take its response is reset, as the rest of that is dropped. Where a body has come in part the handler is
// called by net/http, and finds that out as it reads.
func (h *Handler) OnDeadline(c *quoit.Conn) {
	known := c.Context().(*state)
	switch over := known.times.Passed(c); {
	case over == limits.Writing:
		_ = c.Abort() // or it has ended
	case over == limits.None:
		h.watchTime(c, known)
	case known.idle(c):
		_ = c.Close() // or it has ended
	case known.requests.Need > 0:
		known.requests.Need = -1
		h.move(c)
	default:
		_, _ = c.WriteString(tooSlow) // or it has ended
		_ = c.Close()                 // or it has ended
	}
}
