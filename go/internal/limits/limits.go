// Package limits keeps the times that an HTTP connection on a loop may take, by one deadline of the connection.
package limits

import (
	"errors"
	"os"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// Limits are the times of a server; 0 is no limit.
type Limits struct {
	Idle    time.Duration // until some of a request comes
	Head    time.Duration // from there on until its head is there
	Request time.Duration // and until all of it is
	Write   time.Duration // from there on until its response has left
}

// Times makes those of a connection that is there now; nil if there are no limits, so that such connections need no memory for
// them.
func (l *Limits) Times() *Times {
	if *l == (Limits{}) {
		return nil
	}
	return &Times{began: time.Now()}
}

// Times are those of one connection. All methods take nil for a connection without limits. The loop's.
type Times struct {
	began   time.Time // the request that is being read, or the wait for one
	reading bool      // some of a request has come
	readBy  time.Time
	writeBy time.Time // what is queued for the peer must have gone by then
	set     time.Time // the connection's deadline
}

// Begun notes that some of a request has come, or that its time begins before that.
func (t *Times) Begun() {
	if t != nil && !t.reading {
		t.reading, t.began = true, time.Now()
	}
}

// Read notes that a request has been read whole.
func (t *Times) Read(l *Limits) {
	if t == nil {
		return
	}
	now := time.Now()
	t.reading, t.began = false, now
	if l.Write > 0 {
		t.writeBy = now.Add(l.Write)
	}
}

// Watch sets the connection's deadline, by what it waits for: as many bytes as the request needs if that is known, and nothing
// where what has come is still to be served.
func (t *Times) Watch(c *quoit.Conn, l *Limits, need int, pending bool) {
	if t == nil || need < 0 {
		return
	}
	limit := l.Request
	switch {
	case pending || c.IsClosed():
		limit = 0
	case !t.reading:
		limit = l.Idle
	case need == 0:
		limit = l.Head
	}
	t.readBy = time.Time{}
	if limit > 0 {
		t.readBy = t.began.Add(limit)
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

// Over is which of the limits a connection has passed.
type Over int

const (
	None    Over = iota
	Reading      // too little of a request has come
	Writing      // the peer has not taken its response
)

// Passed returns what the connection's deadline, which is over, was set for. Not for nil, which sets none.
func (t *Times) Passed(c *quoit.Conn) Over {
	now := time.Now()
	t.set = time.Time{}
	switch {
	case !t.writeBy.IsZero() && !now.Before(t.writeBy) && c.Unsent() > 0:
		return Writing
	case t.readBy.IsZero() || now.Before(t.readBy):
		return None
	}
	return Reading
}

// Forget leaves the deadlines to whoever has the connection next.
func (t *Times) Forget(c *quoit.Conn) {
	if t != nil && !t.set.IsZero() {
		t.set = time.Time{}
		_ = c.SetDeadline(time.Time{}) // or it is closing already
	}
}

// WriteWithin writes what was left from the loop, in no more than the time for a response, if that is limited. A peer that takes too
// long is reset: the rest is dropped, and an end would look as if everything had been sent.
func WriteWithin(n *quoit.NetConn, limit time.Duration, write func() error) error {
	if limit <= 0 {
		return write()
	}
	until := time.Now().Add(limit)
	_ = n.SetWriteDeadline(until) // fails where writing fails, too, which lets go of what is written
	if err := write(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(until) {
			_ = n.Abort() // or it has ended
		}
		return err
	}
	return n.SetWriteDeadline(time.Time{})
}
