package quoit

import (
	"errors"
	"syscall"
)

// packetSocket is what a net.UDPConn can be told, and what its descriptor is.
type packetSocket interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	Control(f func(fd uintptr)) error
}

// onSocket runs f with the options of the socket, and waits for it.
func (p *PacketConn) onSocket(op string, f func(socket packetSocket) error) error {
	if p.std != nil {
		return f(stdPacketOptions{p.std})
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	err := error(errClosed)
	if !closed {
		err = p.socket.below.onSocket(f)
	}
	if err != nil {
		return p.localError(op, err)
	}
	return nil
}

// SetReadBuffer sets what the kernel keeps for those who read late (SO_RCVBUF), as net.UDPConn's does.
func (p *PacketConn) SetReadBuffer(bytes int) error {
	return p.onSocket("set", func(socket packetSocket) error { return socket.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets what the kernel keeps of what is sent (SO_SNDBUF), as net.UDPConn's does.
func (p *PacketConn) SetWriteBuffer(bytes int) error {
	return p.onSocket("set", func(socket packetSocket) error { return socket.SetWriteBuffer(bytes) })
}

// SyscallConn gives the descriptor to those who set options that have no method here, by Control. Its Read and Write return
// errors.ErrUnsupported: it is the loop that waits for the socket. Control may be called from any goroutine and runs its function on
// the loop, but a panic of that is the caller's. On EngineStd it is that of package net.
func (p *PacketConn) SyscallConn() (syscall.RawConn, error) {
	if p.std != nil {
		return p.std.(syscall.Conn).SyscallConn()
	}
	return rawConn{p}, nil
}

var _ syscall.Conn = (*PacketConn)(nil)

// control gives the descriptor to f, on the loop.
func (p *PacketConn) control(f func(fd uintptr)) error {
	return p.onSocket("raw-control", func(socket packetSocket) error { return socket.Control(f) })
}

// SetReadBuffer is as PacketConn's.
func (c *DatagramConn) SetReadBuffer(bytes int) error { return c.p.SetReadBuffer(bytes) }

// SetWriteBuffer is as PacketConn's.
func (c *DatagramConn) SetWriteBuffer(bytes int) error { return c.p.SetWriteBuffer(bytes) }

// SyscallConn is as PacketConn's.
func (c *DatagramConn) SyscallConn() (syscall.RawConn, error) { return c.p.SyscallConn() }

// stdPacketOptions are those of a socket of package net.
type stdPacketOptions struct{ connection any }

func (o stdPacketOptions) SetReadBuffer(bytes int) error {
	if has, can := o.connection.(interface{ SetReadBuffer(bytes int) error }); can {
		return has.SetReadBuffer(bytes)
	}
	return errors.ErrUnsupported
}

func (o stdPacketOptions) SetWriteBuffer(bytes int) error {
	if has, can := o.connection.(interface{ SetWriteBuffer(bytes int) error }); can {
		return has.SetWriteBuffer(bytes)
	}
	return errors.ErrUnsupported
}

func (o stdPacketOptions) Control(f func(fd uintptr)) error {
	raw, err := o.connection.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}
