// Package turns divides the requests of an HTTP connection among the turns of its loop.
package turns

import quoit "github.com/quoit-io/quoit/go"

// Share is how many requests are served for one connection before others have their turn: some 0.5 ms of work for the
// library and the frameworks' parsers. A peer that sends without end brings thousands at once.
const Share = 64

// Requests is what is left of a connection's requests. The loop's.
type Requests struct {
	// Need is how many bytes the request has that is not complete; 0 if that is not known, -1 if the connection has left the
	// loop.
	Need int

	later bool // the rest of what has come is served in the next turn
	ended bool // the peer has, and what came before is still to be served
}

// Wait is whether nothing can be served of what has come so far, or not in this turn.
func (r *Requests) Wait(c *quoit.Conn) bool { return r.later || c.Buffered() < r.Need }

// Pending is whether the rest of what has come is served in the next turn.
func (r *Requests) Pending() bool { return r.later }

// Later has the rest served in the next turn. move takes to a goroutine what is left behind it of a connection that has ended.
func (r *Requests) Later(c *quoit.Conn, serve, move func(c *quoit.Conn)) {
	r.later = c.Run(func(c *quoit.Conn) {
		r.later = false
		if c.IsClosed() {
			return
		}
		serve(c)
		if r.ended && r.Need >= 0 {
			r.End(c, move)
		}
	}) == nil
}

// End notes that the peer has ended. What came before is served first; a part of a request is the framework's to judge, to
// whom move takes it.
func (r *Requests) End(c *quoit.Conn, move func(c *quoit.Conn)) {
	r.ended = true
	switch {
	case r.later:
	case c.Buffered() > 0 && !c.IsClosed():
		r.Need = -1
		move(c)
	default:
		_ = c.Close() // or it is closing already
	}
}
