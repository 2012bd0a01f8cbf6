package loophttp

import (
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// times are when a connection on a loop is ended, by the limits of the http.Server and with the meaning that net/http gives
// them. A zero time is none.
type times struct {
	began   time.Time // the request that is being read, or the connection
	reading bool      // some of a request has come, or nothing has since the connection was there
	readBy  time.Time
	writeBy time.Time // what is queued for the peer must have gone by then
	set     time.Time // the connection's deadline
}

// timed is whether the http.Server has any limit of time.
func (h *Handler) timed() bool {
	s := h.server
	return s.ReadTimeout > 0 || s.ReadHeaderTimeout > 0 || s.IdleTimeout > 0 || s.WriteTimeout > 0
}

// watchTime sets the connection's deadline, by what it waits for.
func (h *Handler) watchTime(c *quoit.Conn, known *state) {
	if !h.timed() || known.requests.Need < 0 {
		return
	}
	t := &known.times
	var limit time.Duration
	from := t.began
	switch {
	case known.requests.Pending() || c.IsClosed():
		// What has come is served first.
	case !t.reading:
		from, limit = time.Now(), firstSet(h.server.IdleTimeout, h.server.ReadTimeout)
	case known.requests.Need == 0:
		limit = firstSet(h.server.ReadHeaderTimeout, h.server.ReadTimeout)
	default:
		limit = h.server.ReadTimeout
	}
	t.readBy = time.Time{}
	if limit > 0 {
		t.readBy = from.Add(limit)
	}
	// Just after a response it is queued here, and the library need not be asked.
	if !t.writeBy.IsZero() && c.Queued() == 0 && c.Unsent() == 0 {
		t.writeBy = time.Time{}
	}
	next := t.readBy
	if !t.writeBy.IsZero() && (next.IsZero() || t.writeBy.Before(next)) {
		next = t.writeBy
	}
	if !next.Equal(t.set) {
		t.set = next
		_ = c.SetDeadline(next) // or it is closing already
	}
}

func firstSet(limits ...time.Duration) time.Duration {
	for _, limit := range limits {
		if limit != 0 {
			return limit
		}
	}
	return 0
}

// noteBytes notes that some of a request has come.
func (h *Handler) noteBytes(known *state) {
	if !known.times.reading && h.timed() {
		known.times.reading, known.times.began = true, time.Now()
	}
}

// noteRead notes that a request has been read whole.
func (h *Handler) noteRead(known *state) {
	if !h.timed() {
		return
	}
	now := time.Now()
	known.times.reading, known.times.began = false, now
	if h.server.WriteTimeout > 0 {
		known.times.writeBy = now.Add(h.server.WriteTimeout)
	}
}

// tooSlow is what net/http sends to a peer of which a part of a head has come in time.
const tooSlow = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"

// OnDeadline implements quoit.DeadlineHandler: a peer that has no request is told nothing, and its connection is closed.
// One that does not take its response is reset, as the rest of that is dropped. Where a body has come in part the handler is
// called by net/http, and finds that out as it reads.
func (h *Handler) OnDeadline(c *quoit.Conn) {
	known := c.Context().(*state)
	t, now := &known.times, time.Now()
	t.set = time.Time{}
	switch {
	case !t.writeBy.IsZero() && !now.Before(t.writeBy) && c.Unsent() > 0:
		_ = c.Abort() // or it has ended
	case t.readBy.IsZero() || now.Before(t.readBy):
		h.watchTime(c, known)
	case known.idle(c):
		_ = c.Close() // or it has ended
	case known.requests.Need > 0:
		known.requests.Need = -1
		h.move(c, nil)
	default:
		_, _ = c.WriteString(tooSlow) // or it has ended
		_ = c.Close()                 // or it has ended
	}
}

// forgetTime leaves the deadlines to whoever has the connection next.
func (h *Handler) forgetTime(c *quoit.Conn, known *state) {
	if !known.times.set.IsZero() {
		known.times.set = time.Time{}
		_ = c.SetDeadline(time.Time{}) // or it is closing already
	}
}
