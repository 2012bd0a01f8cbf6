package quoit

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// streamSocket is what a net.TCPConn can be told, and what its descriptor is.
type streamSocket interface {
	SetNoDelay(noDelay bool) error
	SetKeepAlivePeriod(period time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	Control(f func(fd uintptr)) error
}

// option sets an option of the socket.
func (n *NetConn) option(f func(socket streamSocket) error) error {
	if err := n.conn.home.onSocket(n.conn, f); err != nil {
		return n.opError("set", err)
	}
	return nil
}

// SetNoDelay says whether the kernel sends small segments at once, as net.TCPConn's does. From the start it does, unless
// WithNoDelay says otherwise.
func (n *NetConn) SetNoDelay(noDelay bool) error {
	return n.option(func(socket streamSocket) error { return socket.SetNoDelay(noDelay) })
}

// SetKeepAlive says whether the kernel asks an idle peer whether it is still there, as net.TCPConn's does. From the start
// WithKeepAlive says so.
func (n *NetConn) SetKeepAlive(keepAlive bool) error {
	return n.SetKeepAliveConfig(net.KeepAliveConfig{Enable: keepAlive, Idle: -1, Interval: -1, Count: -1})
}

// SetKeepAlivePeriod sets how long a peer is idle before it is asked, as net.TCPConn's does: it does not turn that on.
func (n *NetConn) SetKeepAlivePeriod(period time.Duration) error {
	return n.option(func(socket streamSocket) error { return socket.SetKeepAlivePeriod(period) })
}

// SetKeepAliveConfig sets how an idle peer is asked, as net.TCPConn's does: 0 of a part is 15 s, or 9 times; less leaves it.
func (n *NetConn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return n.option(func(socket streamSocket) error { return socket.SetKeepAliveConfig(config) })
}

// SetLinger says what Close does with what was written and has not left, as net.TCPConn's does: 0 drops it, and the peer
// sees a reset; otherwise it leaves, at most in the time of WithCloseLimit with a peer that takes nothing.
func (n *NetConn) SetLinger(seconds int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.opError("set", errClosed)
	}
	n.drops = seconds == 0
	return nil
}

// SyscallConn gives the descriptor to those who set options that have no method here, by Control. Its Read and Write answer
// errors.ErrUnsupported: it is the loop that waits for the socket. The descriptor's mode, O_NONBLOCK, must stay as it is.
func (n *NetConn) SyscallConn() (syscall.RawConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, n.opError("raw-control", errClosed)
	}
	return rawConn{n}, nil
}

var _ syscall.Conn = (*NetConn)(nil)

type rawConn struct{ n *NetConn }

func (r rawConn) Control(f func(fd uintptr)) error {
	err := r.n.conn.home.onSocket(r.n.conn, func(socket streamSocket) error { return socket.Control(f) })
	if err != nil {
		return r.n.opError("raw-control", err)
	}
	return nil
}

func (r rawConn) Read(func(fd uintptr) bool) error {
	return r.n.opError("raw-read", errors.ErrUnsupported)
}

func (r rawConn) Write(func(fd uintptr) bool) error {
	return r.n.opError("raw-write", errors.ErrUnsupported)
}
