package quoit

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// PacketConn is a net.PacketConn on a loop: what ListenPacket returns. Its methods may be called from any goroutine, at
// the same time.
//
// ReadFrom copies out of the library's receive memory, of which the socket has as many slots as WithDatagramSlots says;
// what comes while all of them wait to be read stays in the kernel's memory, or is dropped there. WriteTo copies, and
// returns when the datagram is queued, at most as many bytes as WithWaterMarks says: as on any network, nobody tells
// whether it arrives, and Counters counts those that the kernel refused later. On the thread of its own loop a call that
// would have to wait returns ErrOnLoop.
type PacketConn struct {
	loops     *Loops
	ownsLoops bool
	network   string
	config    *config
	socket    *DatagramSocket
	std       net.PacketConn // instead, on EngineStd

	// One reader and one writer wait at a time; the others queue up here.
	reading sync.Mutex
	writing sync.Mutex

	mu      sync.Mutex
	queue   []received // from head on
	head    int
	waits   bool  // a reader waits
	called  bool  // a reader that waited was made ready, and has not run yet
	closed  bool  // by this end
	lost    bool  // with the loop, or the descriptor
	failure error // why
	// What the network has answered and nobody has read: of one that is connected the last, of others keptRefusals.
	refusals []*DatagramError

	readable chan struct{} // room for one; tells the reader to look
	writable chan struct{} // likewise, the writer

	readLimit  limit
	writeLimit limit
}

var _ interface {
	net.PacketConn
	io.Closer
} = (*PacketConn)(nil)

// ListenPacket opens a datagram socket on an address of network udp, udp4, udp6 or unixgram, as net.ListenPacket does;
// on EngineStd, and for unixgram, it is package net's: a WriteTo to a Unix socket waits until its receiver has room, for which a
// loop's queue can wait for the one that a socket is connected to alone. Options make its loop, which lasts until it is closed.
func ListenPacket(network, address string, options ...Option) (*PacketConn, error) {
	config, err := newPlainConfig(append([]Option{WithLoops(1)}, options...))
	if err != nil {
		return nil, err
	}
	config.broadcast = true // as of every socket of package net
	if network == "unixgram" && config.shared == nil {
		config.engine = EngineStd
	}
	loops, owns, err := config.group()
	if err != nil {
		return nil, err
	}
	p := &PacketConn{
		loops: loops, ownsLoops: owns, network: network, config: config,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	if err := p.open(network, address); err != nil {
		if owns {
			_ = loops.Close() // fails only if it was called before
		}
		return nil, err
	}
	return p, nil
}

func (p *PacketConn) open(network, address string) error {
	if p.loops.engine == EngineStd || network == "unixgram" {
		var err error
		p.std, err = listenStdPacket(network, address, p.config)
		return err
	}
	bound, err := bindAddress(network, address)
	if err != nil {
		return listenError(network, "", err)
	}
	loop, err := p.loops.pick()
	if err == nil {
		p.socket, err = p.loops.openDatagram(loop.number(), network, bound, nil, p.config, false, packetSink{p})
	}
	if err != nil {
		return listenError(network, bound, err)
	}
	return nil
}

// keptRefusals is how many answers of the network wait for a reader of a socket without a peer.
const keptRefusals = 64

// packetSink reports to a PacketConn.
type packetSink struct{ p *PacketConn }

func (packetSink) keepsLeases() {}

func (k packetSink) received(s *DatagramSocket, batch []received) {
	p := k.p
	p.mu.Lock()
	if p.closed || p.lost {
		p.mu.Unlock()
		for index := range batch {
			s.below.returnLease(batch[index].lease)
		}
		return
	}
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	} else if len(p.queue)+len(batch) > cap(p.queue) && p.head >= len(p.queue)/2 {
		// Of a reader that never catches up, what was read makes room.
		left := copy(p.queue, p.queue[p.head:])
		clear(p.queue[left:])
		p.queue, p.head = p.queue[:left], 0
	}
	p.queue = append(p.queue, batch...)
	wake := p.waits
	p.waits = false
	p.called = p.called || wake
	p.mu.Unlock()
	if wake {
		s.below.wakesReader()
		signal(p.readable)
	}
}

func (k packetSink) writable(s *DatagramSocket) {
	signal(k.p.writable)
	s.below.wokeSomebody()
}

// failed tells the next reader what the peer of a connected socket has answered, or whose datagram did not arrive. What is
// of no peer is not told: the counters tell, and a later datagram has nothing to do with it.
func (k packetSink) failed(s *DatagramSocket, err *DatagramError) {
	k.p.mu.Lock()
	switch {
	case s.remote != nil:
		k.p.refusals = append(k.p.refusals[:0], err)
	case err.Peer.IsValid() && len(k.p.refusals) < keptRefusals:
		k.p.refusals = append(k.p.refusals, err)
	}
	k.p.mu.Unlock()
	signal(k.p.readable)
	s.below.wokeSomebody()
}

func (k packetSink) closed(s *DatagramSocket, err error) {
	p := k.p
	p.mu.Lock()
	p.lost = true
	if !p.closed {
		p.failure = err
	}
	p.drop(s)
	stop(&p.readLimit)
	stop(&p.writeLimit)
	p.mu.Unlock()
	signal(p.readable)
	signal(p.writable)
	s.below.wokeSomebody()
	if p.ownsLoops {
		go func() { _ = p.loops.Close() }() // fails only if it was called before
	}
}

// drop gives back what was not read. The lock is held.
func (p *PacketConn) drop(s *DatagramSocket) {
	for index := p.head; index < len(p.queue); index++ {
		s.below.returnLease(p.queue[index].lease)
	}
	p.queue, p.head = nil, 0
}

// ReadFrom implements net.PacketConn. What a datagram has beyond b is lost.
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	if p.std != nil {
		return p.std.ReadFrom(b)
	}
	n, from, err := p.read(b)
	if err != nil {
		return 0, nil, err
	}
	return n, from.Addr(), nil
}

// ReadFromUDPAddrPort is ReadFrom without an allocation for the address, for the networks of UDP.
func (p *PacketConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	if p.std != nil {
		udp, ok := p.std.(*net.UDPConn)
		if !ok {
			return 0, netip.AddrPort{}, p.opError("read", errPeer)
		}
		n, from, err := udp.ReadFromUDPAddrPort(b)
		return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
	}
	n, from, err := p.read(b)
	return n, from.Peer, err
}

func (p *PacketConn) read(b []byte) (int, Datagram, error) {
	if !lock(&p.reading, p.socket.below.here) {
		return 0, Datagram{}, p.opError("read", ErrOnLoop)
	}
	defer p.reading.Unlock()
	for {
		n, from, wait, err := p.tryRead(b)
		if !wait {
			if refusal := (*DatagramError)(nil); errors.As(err, &refusal) {
				if refusal.Peer.IsValid() {
					err = p.opErrorTo("read", net.UDPAddrFromAddrPort(refusal.Peer), p.asCall("read", refusal.Err))
				} else {
					err = p.opError("read", p.asCall("read", refusal.Err))
				}
			} else if err != nil {
				err = p.opError("read", err)
			}
			return n, from, err
		}
		if p.socket.below.here() {
			p.mu.Lock()
			p.waits = false
			p.mu.Unlock()
			return 0, Datagram{}, p.opError("read", ErrOnLoop)
		}
		<-p.readable
	}
}

// tryRead returns a datagram that is there, or that the reader must wait. Its bytes are in b.
func (p *PacketConn) tryRead(b []byte) (n int, from Datagram, wait bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = false
	if p.called {
		p.called = false
		p.socket.below.readerRuns()
	}
	switch {
	case p.closed:
		return 0, from, false, errClosed
	case p.readLimit.expired():
		return 0, from, false, errTimeout
	case len(p.refusals) > 0:
		err = p.refusals[0]
		p.refusals = slices.Delete(p.refusals, 0, 1)
		return 0, from, false, err
	case p.head < len(p.queue):
	case p.failure != nil:
		return 0, from, false, p.failure
	case p.lost:
		return 0, from, false, errClosed
	default:
		p.waits = true
		return 0, from, true, nil
	}
	first := &p.queue[p.head]
	from = first.Datagram
	one := first.Bytes
	if first.count > 1 {
		one = one[:min(first.segment, len(one))]
		first.Bytes = first.Bytes[len(one):]
		first.count--
	} else {
		first.count = 0
	}
	n = copy(b, one)
	from.Bytes = nil
	if first.count == 0 {
		p.socket.below.returnLease(first.lease)
		*first = received{}
		p.head++
	}
	return n, from, false, nil
}

// takeRefusal is what the network has answered and nobody was told, of a socket with a peer that is open.
func (p *PacketConn) takeRefusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refusals) == 0 || p.closed || p.writeLimit.expired() {
		return nil
	}
	err := p.refusals[0].Err
	p.refusals = p.refusals[:0]
	return err
}

// WriteTo implements net.PacketConn. It waits while the queue is full.
func (p *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if p.std != nil {
		return p.std.WriteTo(b, to)
	}
	udp, is := to.(*net.UDPAddr)
	if !is {
		return 0, p.opErrorTo("write", to, syscall.EINVAL)
	}
	if udp == nil {
		return 0, p.opErrorTo("write", nil, errPeer)
	}
	target := peer{address: udp.AddrPort()}
	if !target.address.IsValid() && udp.IP == nil {
		// As with package net: the host itself.
		target.address = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(udp.Port))
	}
	if err := p.write(b, target); err != nil {
		return 0, p.opErrorTo("write", to, p.asCall("write", err))
	}
	return len(b), nil
}

// WriteToUDPAddrPort is WriteTo for the networks of UDP.
func (p *PacketConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if p.std != nil {
		if udp, ok := p.std.(*net.UDPConn); ok {
			return udp.WriteToUDPAddrPort(b, to)
		}
		return 0, p.opError("write", errPeer)
	}
	if err := p.write(b, peer{address: to}); err != nil {
		return 0, p.opErrorTo("write", net.UDPAddrFromAddrPort(to), p.asCall("write", err))
	}
	return len(b), nil
}

func (p *PacketConn) write(b []byte, to peer) error {
	if !lock(&p.writing, p.socket.below.here) {
		return ErrOnLoop
	}
	defer p.writing.Unlock()
	if address := to.address.Addr(); address.Is4In6() {
		to.address = netip.AddrPortFrom(address.Unmap(), to.address.Port())
	}
	if err := p.reachable(to); err != nil {
		return err
	}
	message := Message{Bytes: b}
	for {
		p.mu.Lock()
		closed, expired, failure, lost := p.closed, p.writeLimit.expired(), p.failure, p.lost
		p.mu.Unlock()
		switch {
		case closed:
			return errClosed
		case expired:
			return errTimeout
		case failure != nil:
			return failure
		case lost:
			return errClosed
		}
		err := p.socket.below.send(&message, to)
		if err != ErrFull {
			return err
		}
		if p.socket.below.here() {
			return ErrOnLoop
		}
		<-p.writable
	}
}

// reachable returns what the kernel would say of a peer to whom such a socket cannot send, where package net's has it from it.
func (p *PacketConn) reachable(to peer) error {
	address := to.address.Addr()
	local, is := p.socket.local.(*net.UDPAddr)
	switch {
	case !is || !address.IsValid():
	case local.IP.To4() != nil && !address.Is4():
		return &net.AddrError{Err: "non-IPv4 address", Addr: address.String()}
	case to.address.Port() == 0:
		return os.NewSyscallError("sendto", syscall.EINVAL)
	case p.network == "udp6" && address.Is4() && !address.IsUnspecified():
		return os.NewSyscallError("sendto", syscall.ENETUNREACH)
	}
	return nil
}

// Close implements net.PacketConn. It wakes who waits, lets what was written leave, at most for the time of
// WithCloseLimit, and returns when the socket is closed (on the thread of its own loop, before).
func (p *PacketConn) Close() error {
	if p.std != nil {
		err := p.std.Close()
		if p.ownsLoops {
			_ = p.loops.Close() // fails only if it was called before
		}
		return err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return p.opError("close", errClosed)
	}
	p.closed = true
	p.drop(p.socket)
	stop(&p.readLimit)
	stop(&p.writeLimit)
	p.mu.Unlock()
	signal(p.readable)
	signal(p.writable)
	_ = p.socket.Close() // or it has ended by itself
	if !p.socket.below.here() {
		<-p.socket.gone
	}
	return nil
}

// LocalAddr implements net.PacketConn.
func (p *PacketConn) LocalAddr() net.Addr {
	if p.std != nil {
		return p.std.LocalAddr()
	}
	return p.socket.local
}

// Loops are the loops that it runs on.
func (p *PacketConn) Loops() *Loops { return p.loops }

// Counters is what the socket has done; on EngineStd nothing is known.
func (p *PacketConn) Counters() (DatagramCounters, error) {
	if p.std != nil {
		return DatagramCounters{}, nil
	}
	return p.socket.Counters()
}

// SetDeadline implements net.PacketConn.
func (p *PacketConn) SetDeadline(t time.Time) error {
	if err := p.SetReadDeadline(t); err != nil {
		return err
	}
	return p.SetWriteDeadline(t)
}

// SetReadDeadline implements net.PacketConn. A time in the past wakes a reader.
func (p *PacketConn) SetReadDeadline(t time.Time) error {
	if p.std != nil {
		return p.std.SetReadDeadline(t)
	}
	return p.setLimit(&p.readLimit, p.readable, t)
}

// SetWriteDeadline implements net.PacketConn. A time in the past wakes a writer.
func (p *PacketConn) SetWriteDeadline(t time.Time) error {
	if p.std != nil {
		return p.std.SetWriteDeadline(t)
	}
	return p.setLimit(&p.writeLimit, p.writable, t)
}

func (p *PacketConn) setLimit(of *limit, waiter chan struct{}, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.localError("set", errClosed)
	}
	of.set(&p.mu, waiter, t)
	return nil
}

func (p *PacketConn) opError(op string, err error) error {
	var peer net.Addr
	if p.socket != nil && p.socket.remote != nil {
		peer = p.socket.remote
	}
	return p.opErrorTo(op, peer, err)
}

// localError is of what concerns this end alone, as package net names it then.
func (p *PacketConn) localError(op string, err error) error {
	return &net.OpError{Op: op, Net: p.network, Addr: p.LocalAddr(), Err: err}
}

// asCall is asCall with the call that package net makes for a socket with a peer, or for one without.
func (p *PacketConn) asCall(op string, err error) error {
	switch {
	case p.socket.remote != nil:
		return asCall(op, err)
	case op == "read":
		return asCall("recvfrom", err)
	default:
		return asCall("sendto", err)
	}
}

func (p *PacketConn) opErrorTo(op string, to net.Addr, err error) error {
	return &net.OpError{Op: op, Net: p.network, Source: p.LocalAddr(), Addr: to, Err: err}
}
