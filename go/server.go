package quoit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Server runs a Handler for the connections of one address. Its methods may be called from any goroutine, but those
// that wait not in callbacks.
type Server struct {
	config    *config
	loops     *Loops
	ownsLoops bool
	listening *listening
	headers   proxyCounters

	mu       sync.Mutex
	open     map[*Conn]struct{}
	draining bool
	empty    chan struct{} // closed when draining and no connection is left
	done     chan struct{} // closed when it has been shut down
	ticking  bool
}

// Serve runs the handler for the connections of an address until the context ends, and then shuts down gracefully,
// waiting for connections for at most the time of WithCloseLimit. The address is host:port, where an empty host is
// every one, or unix:PATH. It returns nil after such an end, and otherwise why it failed, when it has shut down what was left.
// Start and Shutdown give more control.
func Serve(ctx context.Context, address string, handler Handler, options ...Option) error {
	server, err := Start(address, handler, options...)
	if err != nil {
		return err
	}
	return serveUntil(ctx, server, server.config.closeLimit)
}

// serveUntil waits for the end of a server, which is shut down when the context ends. It returns nil then, and otherwise why it failed.
func serveUntil(ctx context.Context, server interface {
	Shutdown(ctx context.Context) error
	Wait() error
}, limit time.Duration) error {
	shutDown := func() error {
		limited, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return server.Shutdown(limited)
	}
	stopped := context.AfterFunc(ctx, func() {
		_ = shutDown() // those that take longer are aborted
	})
	defer stopped()
	err := server.Wait()
	if err == nil {
		return nil
	}
	// One loop, or the listening socket, has failed. The others are not left behind.
	if late := shutDown(); late != nil && !errors.Is(late, ErrShutdown) {
		err = errors.Join(err, late)
	}
	return err
}

// Start runs the handler for the connections of an address, as Serve does, and returns as soon as it accepts.
func Start(address string, handler Handler, options ...Option) (*Server, error) {
	network, rest := splitServeAddress(address)
	if network == "unix" && rest == "" {
		return nil, fmt.Errorf("quoit: listening on %s: there is no path; the address of a Unix socket is unix:PATH", address)
	}
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	loops, owns, err := config.group()
	if err != nil {
		return nil, err
	}
	server := &Server{
		config: config, loops: loops, ownsLoops: owns,
		open: make(map[*Conn]struct{}), empty: make(chan struct{}), done: make(chan struct{}), ticking: true,
	}
	events := newHandlerSink(handler, server)
	bound, err := bindAddress(network, rest)
	if limit := loops.config.inbound; err == nil && events.gathers > limit {
		err = fmt.Errorf("the handler gathers up to %d bytes, more than WithInboundLimit(%d) lets a connection keep", events.gathers, limit)
	}
	if err == nil {
		server.listening, err = loops.listen(bound, config, func(*Conn) sink {
			if config.headerWithin > 0 {
				return &headerSink{to: events}
			}
			return events
		}, nil)
	}
	if err != nil {
		err = fmt.Errorf("quoit: listening on %s: %w", address, err)
		if owns {
			err = errors.Join(err, loops.Close())
		}
		return nil, err
	}
	for _, loop := range loops.loops {
		loop.every(func() time.Duration {
			if !server.ticks() {
				return 0
			}
			return events.tick(loop.number())
		})
	}
	return server, nil
}

// group returns the loops to run on: those that are shared, or new ones.
func (c *config) group() (loops *Loops, owns bool, err error) {
	if c.shared != nil {
		return c.shared, false, nil
	}
	loops, err = newLoops(c)
	return loops, true, err
}

func (s *Server) ticks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ticking
}

func (s *Server) add(c *Conn) {
	s.mu.Lock()
	s.open[c] = struct{}{}
	late := s.draining
	s.mu.Unlock()
	if late {
		_ = c.Close() // it was accepted while the server began to shut down
	}
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	if s.draining && len(s.open) == 0 {
		s.drained()
	}
}

// drained notes that no connection is left. The lock is held.
func (s *Server) drained() {
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// Addr is where the server listens, its port resolved.
func (s *Server) Addr() net.Addr { return s.listening.local }

// Loops are the loops that it runs on.
func (s *Server) Loops() *Loops { return s.loops }

// Connections is the number of connections that are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Wait waits until the server was shut down, or has failed, and returns why it failed.
func (s *Server) Wait() error {
	select {
	case <-s.done:
		return nil
	case <-s.loops.failed:
		s.loops.mu.Lock()
		defer s.loops.mu.Unlock()
		return s.loops.failure
	case <-s.listening.stopped:
	}
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if !draining {
		return s.listening.failure
	}
	<-s.done
	return nil
}

// Shutdown stops accepting, has every connection told (Drainer, DetachedDrainer) or closed, and waits until all have gone. When the
// context ends first it aborts what is left, and returns the context's error. A callback that is under way is waited for,
// also past the context. The second call returns ErrShutdown.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return ErrShutdown
	}
	s.draining, s.ticking = true, false
	if len(s.open) == 0 {
		s.drained()
	}
	s.mu.Unlock()
	defer close(s.done)

	s.listening.stop()
	<-s.listening.stopped
	for _, loop := range s.loops.loops {
		loop.each(func(c *Conn) {
			if s.has(c) && !c.IsClosed() {
				c.sink.draining(c)
			}
		})
	}
	var err error
	select {
	case <-s.empty:
	case <-ctx.Done():
		err = ctx.Err()
		for _, c := range s.left() {
			_ = c.Abort() // or it has ended by itself
		}
		<-s.empty
	}
	if s.ownsLoops {
		err = errors.Join(err, s.loops.Close())
	}
	return err
}

func (s *Server) has(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.open[c]
	return open
}

func (s *Server) left() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := make([]*Conn, 0, len(s.open))
	for c := range s.open {
		left = append(left, c)
	}
	return left
}
