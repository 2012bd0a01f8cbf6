package loophttp

import (
	"context"
	"net/http"
	"sync"
)

// requestContext is the context of a request, which is done when its handler has returned. Most handlers never ask whether it
// is, and a context of the standard library that can be cancelled costs more than the rest of a small request's bookkeeping. So
// that one is made when somebody asks.
type requestContext struct {
	context.Context // of the connection

	mu     sync.Mutex
	over   bool
	inner  context.Context
	cancel context.CancelFunc
}

// ends notes that the handler has returned.
func (c *requestContext) ends() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

// made is the context that can be cancelled.
func (c *requestContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(c.Context)
		if c.over {
			c.cancel()
		}
	}
	return c.inner
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *requestContext) Err() error { return c.made().Err() }

// Value implements context.Context. By the keys of its own package, context finds the one that can be cancelled.
func (c *requestContext) Value(key any) any {
	if key == http.ServerContextKey || key == http.LocalAddrContextKey {
		return c.Context.Value(key)
	}
	return c.made().Value(key)
}
