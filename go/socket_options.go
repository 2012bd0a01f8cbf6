package quoit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// streamSocket is what a net.TCPConn can be told, and what its descriptor is.
type streamSocket interface {
	packetSocket
	SetNoDelay(noDelay bool) error
	SetKeepAlivePeriod(period time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	File(name string) (*os.File, error)
}

// option sets an option of the socket.
func (n *netConn) option(f func(socket streamSocket) error) error {
	return n.set(n.opError, f)
}

// set sets an option. One that the peer has ended, so that the loop has closed the socket, has nothing left for which that would
// make a difference: package net, which keeps the socket until Close, sets it there.
func (n *netConn) set(fail func(op string, err error) error, f func(socket streamSocket) error) error {
	err := n.onSocket("set", fail, f)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && !n.closed && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// onSocket runs f with the socket, unless this end has closed it.
//
// fail makes its error: of some options package net names both ends, of others this one alone.
func (n *netConn) onSocket(op string, fail func(op string, err error) error, f func(socket streamSocket) error) error {
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	err := error(errClosed)
	if !closed {
		err = n.conn.home.onSocket(n.conn, f)
	}
	if err != nil {
		return fail(op, err)
	}
	return nil
}

// SetNoDelay says whether the kernel sends small segments at once, as net.TCPConn's does. From the start it does, unless
// WithNoDelay says otherwise.
func (n *netConn) SetNoDelay(noDelay bool) error {
	return n.option(func(socket streamSocket) error { return socket.SetNoDelay(noDelay) })
}

// SetReadBuffer sets what the kernel keeps of what was not received (SO_RCVBUF), as net.TCPConn's does: it tunes that no more.
func (n *netConn) SetReadBuffer(bytes int) error {
	return n.set(n.localError, func(socket streamSocket) error { return socket.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets what the kernel keeps of what was sent (SO_SNDBUF), as net.TCPConn's does: it tunes that no more.
func (n *netConn) SetWriteBuffer(bytes int) error {
	return n.set(n.localError, func(socket streamSocket) error { return socket.SetWriteBuffer(bytes) })
}

// SetKeepAlive says whether the kernel asks an idle peer whether it is still there, as net.TCPConn's does. From the start
// WithKeepAlive says so.
func (n *netConn) SetKeepAlive(keepAlive bool) error {
	return n.SetKeepAliveConfig(net.KeepAliveConfig{Enable: keepAlive, Idle: -1, Interval: -1, Count: -1})
}

// SetKeepAlivePeriod sets how long a peer is idle before it is asked, as net.TCPConn's does: it does not turn that on.
func (n *netConn) SetKeepAlivePeriod(period time.Duration) error {
	return n.option(func(socket streamSocket) error { return socket.SetKeepAlivePeriod(period) })
}

// SetKeepAliveConfig sets how an idle peer is asked, as net.TCPConn's does: 0 of a part is 15 s, or 9 times; less leaves it.
func (n *netConn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return n.option(func(socket streamSocket) error { return socket.SetKeepAliveConfig(config) })
}

// SetLinger says what Close does with what was written and has not left, as net.TCPConn's does: 0 drops it, and the peer
// sees a reset; otherwise it leaves, at most in the time of WithCloseLimit with a peer that takes nothing.
func (n *netConn) SetLinger(seconds int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.opError("set", errClosed)
	}
	n.drops = seconds == 0
	return nil
}

// SyscallConn gives the descriptor to those who set options that have no method here, by Control. Its Read and Write return
// errors.ErrUnsupported: it is the loop that waits for the socket. The descriptor's mode, O_NONBLOCK, must stay as it is. Control
// may be called from any goroutine and runs its function on the loop, but a panic of that is the caller's.
func (n *NetConn) SyscallConn() (syscall.RawConn, error) { return rawConn{n}, nil }

// File makes a file of a duplicate of the descriptor, to be handed to another process, as net.TCPConn's does: the caller closes
// both. What has come and was not read stays here, and so does what was written and has not left. The mode of the descriptor,
// O_NONBLOCK, which both share, must stay as it is.
func (n *NetConn) File() (*os.File, error) {
	defer runtime.KeepAlive(n)
	var file *os.File
	err := n.onSocket("file", n.opError, func(socket streamSocket) (err error) {
		file, err = socket.File(fmt.Sprintf("%s:%v->%v", networkOf(n.conn.local), n.conn.local, n.conn.remote))
		return err
	})
	return file, err
}

var _ syscall.Conn = (*NetConn)(nil)

// control gives the descriptor to f, on the loop.
func (n *netConn) control(f func(fd uintptr)) error {
	return n.onSocket("raw-control", n.localError, func(socket streamSocket) error { return socket.Control(f) })
}

// rawConn is the descriptor of a connection or socket that waits on its loop, and not here.
type rawConn struct {
	of interface {
		control(f func(fd uintptr)) error
		localError(op string, err error) error
	}
}

func (r rawConn) Control(f func(fd uintptr)) error { return r.of.control(f) }

func (r rawConn) Read(func(fd uintptr) bool) error {
	return r.of.localError("raw-read", errors.ErrUnsupported)
}

func (r rawConn) Write(func(fd uintptr) bool) error {
	return r.of.localError("raw-write", errors.ErrUnsupported)
}
