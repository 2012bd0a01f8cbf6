package loophttp

import (
	"net"
	"sync"

	quoit "github.com/quoit-io/quoit/go"
)

// handedOver is the listener of the http.Server: it accepts what the loops hand over.
type handedOver struct {
	left    func(n *quoit.NetConn) // what becomes of those that it does not accept any more
	mu      sync.Mutex
	queue   []*quoit.NetConn
	between map[*quoit.NetConn]bool // those that have left the loops and are not here yet; true once they wait for a request
	over    bool                    // it accepts nothing any more
	ready   chan struct{}
	closed  chan struct{}
}

func newHandedOver(left func(n *quoit.NetConn)) *handedOver {
	return &handedOver{
		left: left, between: make(map[*quoit.NetConn]bool), ready: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// add takes note of a connection that is taken later, or ended.
func (l *handedOver) add(n *quoit.NetConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.between[n] = false
}

// waits notes that a connection waits for a request; false if that would be in vain.
func (l *handedOver) waits(n *quoit.NetConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.between[n] = true
	return !l.over
}

// remove forgets what add has noted.
func (l *handedOver) remove(n *quoit.NetConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.between, n)
}

// take queues a connection; it does not wait.
func (l *handedOver) take(n *quoit.NetConn) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.queue = append(l.queue, n)
	}
	l.mu.Unlock()
	if over {
		l.left(n)
		return
	}
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Accept implements net.Listener.
func (l *handedOver) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			connection := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			l.mu.Unlock()
			return connection, nil
		}
		l.mu.Unlock()
		select {
		case <-l.ready:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close implements net.Listener: it accepts nothing more, and ends what waits. Responses that are under way are written first.
func (l *handedOver) Close() error {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	if !l.over {
		l.over = true
		close(l.closed)
	}
	l.mu.Unlock()
	for _, n := range queue {
		l.left(n)
	}
	l.end(func(waits bool) bool { return waits })
	return nil
}

// abandon is Close that does not let responses be written.
func (l *handedOver) abandon() {
	_ = l.Close() // which does not fail
	l.end(func(bool) bool { return true })
}

// end closes those that are on their way here, of which those who brought them then hear.
func (l *handedOver) end(which func(waits bool) bool) {
	l.mu.Lock()
	var ends []*quoit.NetConn
	for n, waits := range l.between {
		if which(waits) {
			ends = append(ends, n)
		}
	}
	l.mu.Unlock()
	for _, n := range ends {
		_ = n.Close() // or the peer has gone
	}
}

// Addr is that of no socket: connections come from loops.
func (l *handedOver) Addr() net.Addr { return &net.UnixAddr{Name: "quoit", Net: "loop"} }
