// Package moved keeps account of the connections that have left the loops for a framework's own server, so that they
// end between two requests when the server shuts down, as that of net/http has it.
package moved

import (
	"net"
	"sync"
)

// Connections are those that have moved and were not hijacked. The zero value has none.
type Connections struct {
	mu     sync.Mutex
	states map[net.Conn]state
}

type state struct {
	idle     bool // between two requests
	draining bool // to be closed as soon as it is idle
}

// Add takes a connection on, a request of which is under way.
func (c *Connections) Add(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil {
		c.states = make(map[net.Conn]state)
	}
	c.states[connection] = state{}
}

// Active notes that a request has begun to come.
func (c *Connections) Active(connection net.Conn) { c.set(connection, false) }

// Idle notes that the response to the last request was written.
func (c *Connections) Idle(connection net.Conn) { c.set(connection, true) }

// Remove forgets a connection: it is closed, or somebody else's.
func (c *Connections) Remove(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, connection)
}

// Drain closes a connection: now, or when the request that is under way was answered.
func (c *Connections) Drain(connection net.Conn) {
	c.mu.Lock()
	known, found := c.states[connection]
	if found && !known.idle {
		known.draining = true
		c.states[connection] = known
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	_ = connection.Close() // or the peer has gone
}

func (c *Connections) set(connection net.Conn, idle bool) {
	c.mu.Lock()
	known, found := c.states[connection]
	if found {
		known.idle = idle
		c.states[connection] = known
	}
	c.mu.Unlock()
	if idle && known.draining {
		_ = connection.Close() // or the peer has gone
	}
}
