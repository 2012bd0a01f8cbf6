// Package moved keeps account of the connections that have left the loops for a framework's own server, so that they
// end between two requests when the server shuts down, as that of net/http has it.
package moved

import (
	"net"
	"sync"
)

// Connections are those that have moved and were not hijacked. The zero value has none.
//
// A connection is known by its remote address as one object, which also one that wraps it returns: servers call their hooks with what
// they have made of the connection.
type Connections struct {
	mu     sync.Mutex
	states map[net.Addr]*state
}

type state struct {
	moved    net.Conn // what has moved, whatever wraps it
	idle     bool     // between two requests
	draining bool     // to be closed as soon as it is idle
}

// Add takes a connection on, a request of which is under way.
func (c *Connections) Add(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil {
		c.states = make(map[net.Addr]*state)
	}
	c.states[connection.RemoteAddr()] = &state{moved: connection}
}

// Active notes that a request has begun to come.
func (c *Connections) Active(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.states[connection.RemoteAddr()]; known != nil {
		known.idle = false
	}
}

// Idle notes that the response to the last request was written.
func (c *Connections) Idle(connection net.Conn) {
	c.mu.Lock()
	known := c.states[connection.RemoteAddr()]
	closes := known != nil && known.draining
	if known != nil {
		known.idle = true
	}
	c.mu.Unlock()
	if closes {
		_ = known.moved.Close() // or the peer has gone
	}
}

// Draining is whether a connection closes behind the response to the request that is under way.
func (c *Connections) Draining(connection net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.states[connection.RemoteAddr()]
	return known != nil && known.draining
}

// Remove forgets a connection: it is closed, or somebody else's.
func (c *Connections) Remove(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, connection.RemoteAddr())
}

// Drain closes a connection: now, or when the request that is under way was answered.
func (c *Connections) Drain(connection net.Conn) {
	c.mu.Lock()
	known := c.states[connection.RemoteAddr()]
	waits := known != nil && !known.idle
	if waits {
		known.draining = true
	}
	c.mu.Unlock()
	if !waits {
		_ = connection.Close() // or the peer has gone
	}
}
