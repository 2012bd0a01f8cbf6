package quoit

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// DatagramConn is a net.Conn of datagrams to and from one peer: what a Dialer returns for the networks of UDP. Each Write
// sends one datagram, and each Read takes one; what it has beyond the bytes read into is lost. A Read also returns what the
// network says of datagrams that were written before, such as syscall.ECONNREFUSED, and the connection goes on. For the rest
// it is as PacketConn.
type DatagramConn struct{ p *PacketConn }

var _ interface {
	net.Conn
	net.PacketConn
} = (*DatagramConn)(nil)

// dialDatagrams makes a socket that is connected to the target, an IP address and port.
func (d *Dialer) dialDatagrams(ctx context.Context, network, target string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	remote, err := netip.ParseAddrPort(target)
	if err != nil {
		return nil, err
	}
	loop, err := d.loops.pick()
	if err != nil {
		return nil, err
	}
	if loop.here() {
		return nil, ErrOnLoop
	}
	if remote.Addr().IsUnspecified() {
		// The kernel takes it for this host, which is what package net calls it then.
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if remote.Addr().Is6() {
			loopback = netip.IPv6Loopback()
		}
		remote = netip.AddrPortFrom(loopback, remote.Port())
	}
	if ip := remote.Addr(); !ip.IsLinkLocalUnicast() && !ip.IsLinkLocalMulticast() && !ip.IsInterfaceLocalMulticast() {
		remote = netip.AddrPortFrom(ip.WithZone(""), remote.Port()) // as the kernel has it, too
	}
	from := "0.0.0.0:0"
	if remote.Addr().Is6() {
		from = "[::]:0"
	}
	p := &PacketConn{
		loops: d.loops, network: network, config: d.config,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	peer := net.UDPAddrFromAddrPort(remote)
	p.socket, err = d.loops.openDatagram(loop.number(), network, from, peer, d.config, false, packetSink{p})
	if err != nil {
		return nil, err
	}
	return &DatagramConn{p}, nil
}

// Read implements net.Conn.
func (c *DatagramConn) Read(b []byte) (int, error) {
	n, _, err := c.p.read(b)
	return n, err
}

// Write implements net.Conn. It waits while the queue is full. What the network has said of an earlier datagram and no Read was
// told, it returns, and sends nothing then.
func (c *DatagramConn) Write(b []byte) (int, error) {
	err := c.p.takeRefusal()
	if err == nil {
		err = c.p.write(b, peer{})
	}
	if err != nil {
		return 0, c.p.opErrorTo("write", c.RemoteAddr(), c.p.asCall("write", err))
	}
	return len(b), nil
}

// ReadFrom implements net.PacketConn, by which code tells datagrams from a stream: it is Read, and returns the peer.
func (c *DatagramConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.p.read(b)
	if err != nil {
		return 0, nil, err
	}
	return n, from.Addr(), nil
}

// WriteTo implements net.PacketConn. It fails, as that of every connected socket of package net: there is one peer.
func (c *DatagramConn) WriteTo(_ []byte, to net.Addr) (int, error) {
	return 0, c.p.opErrorTo("write", to, net.ErrWriteToConnected)
}

// Close implements net.Conn, as PacketConn.Close does.
func (c *DatagramConn) Close() error { return c.p.Close() }

// LocalAddr implements net.Conn.
func (c *DatagramConn) LocalAddr() net.Addr { return c.p.socket.local }

// RemoteAddr implements net.Conn: the peer.
func (c *DatagramConn) RemoteAddr() net.Addr { return c.p.socket.remote }

// SetDeadline implements net.Conn.
func (c *DatagramConn) SetDeadline(t time.Time) error { return c.p.SetDeadline(t) }

// SetReadDeadline implements net.Conn. A time in the past wakes a reader.
func (c *DatagramConn) SetReadDeadline(t time.Time) error { return c.p.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn. A time in the past wakes a writer.
func (c *DatagramConn) SetWriteDeadline(t time.Time) error { return c.p.SetWriteDeadline(t) }

// Counters is what the socket has done.
func (c *DatagramConn) Counters() (DatagramCounters, error) { return c.p.Counters() }
