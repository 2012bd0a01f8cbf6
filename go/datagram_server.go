package quoit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// DatagramServer runs a DatagramHandler on one socket per loop. Its methods may be called from any goroutine, but those
// that wait not in callbacks.
type DatagramServer struct {
	config    *config
	loops     *Loops
	ownsLoops bool
	sockets   []*DatagramSocket

	mu       sync.Mutex
	draining bool
	done     chan struct{} // closed when it has been shut down
}

// ServeDatagrams runs the handler for the datagrams of an address until the context ends, and then shuts down, waiting
// for what is queued for at most the time of WithCloseLimit. network is udp, udp4, udp6 or unixgram, and the address as
// for net.ListenPacket. It returns nil after such an end, and otherwise why it failed, when it has closed what was left.
// StartDatagrams and Shutdown give more control.
func ServeDatagrams(ctx context.Context, network, address string, handler DatagramHandler, options ...Option) error {
	server, err := StartDatagrams(network, address, handler, options...)
	if err != nil {
		return err
	}
	return serveUntil(ctx, server, server.config.closeLimit)
}

// StartDatagrams runs the handler as ServeDatagrams does, and returns as soon as it receives. With several loops each has
// a socket of its own on the port (SO_REUSEPORT): a peer always reaches the same one, and a second server of the same
// user gets no error. With one loop, for unixgram and on EngineStd there is one socket.
func StartDatagrams(network, address string, handler DatagramHandler, options ...Option) (*DatagramServer, error) {
	config, err := newPlainConfig(options)
	if err != nil {
		return nil, err
	}
	loops, owns, err := config.group()
	if err != nil {
		return nil, err
	}
	server := &DatagramServer{config: config, loops: loops, ownsLoops: owns, done: make(chan struct{})}
	if err := server.open(network, address, handler); err != nil {
		err = &net.OpError{Op: "listen", Net: network, Err: err}
		for _, socket := range server.sockets {
			_ = socket.Close() // it was opened just now
		}
		if owns {
			err = errors.Join(err, loops.Close())
		}
		return nil, err
	}
	return server, nil
}

func (s *DatagramServer) open(network, address string, handler DatagramHandler) error {
	bound, err := bindAddress(network, address)
	if err != nil {
		return err
	}
	count := s.loops.Len()
	if network == "unixgram" || s.loops.engine == EngineStd {
		count = 1
	}
	for index := range count {
		sink := &datagramHandlerSink{handler: handler, config: s.config}
		socket, err := s.loops.openDatagram(index, network, bound, nil, s.config, count > 1, sink)
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, socket)
		bound = socket.local.String() // the port was resolved
	}
	return nil
}

// openDatagram opens a socket on a loop, connected to a peer unless that is nil.
func (l *Loops) openDatagram(
	loop int, network, address string, peer net.Addr, config *config, reusePort bool, to datagramSink,
) (*DatagramSocket, error) {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return nil, ErrShutdown
	}
	socket := &DatagramSocket{network: network, remote: peer, loop: loop, gone: make(chan struct{})}
	if err := l.loops[loop].openDatagram(socket, address, config, reusePort, to); err != nil {
		return nil, err
	}
	return socket, nil
}

// Addr is where the server receives, its port resolved.
func (s *DatagramServer) Addr() net.Addr { return s.sockets[0].local }

// Sockets are those of the server, for sending without having been asked.
func (s *DatagramServer) Sockets() []*DatagramSocket { return s.sockets }

// Loops are the loops that it runs on.
func (s *DatagramServer) Loops() *Loops { return s.loops }

// Wait waits until the server was shut down, or has failed, and returns why it failed.
func (s *DatagramServer) Wait() error {
	select {
	case <-s.done:
		return nil
	case <-s.loops.failed:
		s.loops.mu.Lock()
		defer s.loops.mu.Unlock()
		return s.loops.failure
	}
}

// Shutdown stops receiving and waits until what is queued has left. When the context ends first it returns the context's
// error, and what is left is dropped with the server's own loops. The second call returns ErrShutdown.
func (s *DatagramServer) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return ErrShutdown
	}
	s.draining = true
	s.mu.Unlock()
	defer close(s.done)

	for _, socket := range s.sockets {
		_ = socket.Close() // or the handler has
	}
	var err error
	for _, socket := range s.sockets {
		select {
		case <-socket.gone:
		case <-ctx.Done():
			err = fmt.Errorf("quoit: shutting down a server of datagrams: %w", ctx.Err())
		}
	}
	if s.ownsLoops {
		err = errors.Join(err, s.loops.Close())
	}
	return err
}
