package quoit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"time"
)

// The largest payload of a UDP datagram, and that of one over IPv4, which counts its own header too.
const (
	maxUDPPayload   = 65_527
	maxUDPv4Payload = 65_507
)

// Datagram is one datagram that was received. What it holds is the library's receive memory: it ends with the callback.
type Datagram struct {
	// Bytes is what it carries, possibly nothing.
	Bytes []byte
	// Peer is who sent it; the zero value for Unix sockets, whose peers only Addr and DatagramSocket.Reply know.
	Peer netip.AddrPort
	// Local is the address that it was sent to, of this host or a group; with WithDatagramDetails.
	Local netip.Addr
	// Interface is the number of the one that it came by, or 0; with WithDatagramDetails.
	Interface int
	// ECN is its congestion notification, the two bits of RFC 3168; with WithDatagramDetails.
	ECN uint8
	// Time is when the kernel received it; the zero value without WithDatagramDetails.
	Time time.Time
	// Truncated says that it was longer than WithMaxDatagram allows, and the rest is lost.
	Truncated bool

	name string // of a Unix peer
	unix bool
}

// Addr is the peer as a net.Addr: a *net.UDPAddr or *net.UnixAddr.
func (d *Datagram) Addr() net.Addr {
	if d.unix {
		return &net.UnixAddr{Name: d.name, Net: "unixgram"}
	}
	return net.UDPAddrFromAddrPort(d.Peer)
}

// Message is a datagram to be sent, or several of one size to one peer.
type Message struct {
	// Bytes is what to send; it is copied.
	Bytes []byte
	// To is the peer. On a socket of IPv6, an address of IPv4 goes out as such.
	To netip.AddrPort
	// SegmentSize cuts Bytes into datagrams of so many bytes, of which the last may be shorter; they leave with one call
	// where the kernel and the device can (GSO). 0: one datagram.
	SegmentSize int
	// Source is the address to send from, one of this host; the zero value lets the kernel choose. Not on EngineStd.
	Source netip.Addr
	// ECN is the congestion notification to carry, the two bits of RFC 3168. Not on EngineStd.
	ECN uint8
}

// DatagramHandler serves the sockets of a DatagramServer. All methods for the socket of one loop run on that loop, one
// after the other; those of different loops run at the same time. They must not block: while one runs, nothing else of
// its loop is served. Embed BaseDatagramHandler to write only those that matter.
type DatagramHandler interface {
	// OnDatagram is called with the datagrams that one turn of the loop has brought, at least one. Those that the
	// kernel had joined come one by one. The slice and what the datagrams hold end with this call. A panic loses the
	// rest of the batch and is logged; the socket goes on.
	OnDatagram(s *DatagramSocket, batch []Datagram)

	// OnWritable is called when the queue has been full (a send returned ErrFull) and is at its low-water mark.
	OnWritable(s *DatagramSocket)

	// OnError is called when a datagram that was queued could not be sent, or an earlier one did not arrive. The socket
	// goes on. err is a *DatagramError.
	OnError(s *DatagramSocket, err error)

	// OnClose is called when the socket is gone, once, and last. err is nil if it was closed by Shutdown or Close.
	OnClose(s *DatagramSocket, err error)
}

// BaseDatagramHandler has all methods of a DatagramHandler, which do nothing.
type BaseDatagramHandler struct{}

// OnDatagram does nothing.
func (BaseDatagramHandler) OnDatagram(*DatagramSocket, []Datagram) {}

// OnWritable does nothing.
func (BaseDatagramHandler) OnWritable(*DatagramSocket) {}

// OnError does nothing.
func (BaseDatagramHandler) OnError(*DatagramSocket, error) {}

// OnClose does nothing.
func (BaseDatagramHandler) OnClose(*DatagramSocket, error) {}

// DatagramError is what OnError is told.
type DatagramError struct {
	// Err is the kernel's error, such as syscall.EMSGSIZE.
	Err error
	// Size is the length of the datagram that was to be sent; 0 where that is not known.
	Size int
	// Peer is to whom a datagram did not arrive, with WithReceiveErrors; otherwise the zero value.
	Peer netip.AddrPort
}

func (e *DatagramError) Error() string {
	if e.Peer.IsValid() {
		return fmt.Sprintf("quoit: a datagram to %v did not arrive: %v", e.Peer, e.Err)
	}
	if e.Size > 0 {
		return fmt.Sprintf("quoit: sending a datagram of %d bytes: %v", e.Size, e.Err)
	}
	return fmt.Sprintf("quoit: datagrams: %v", e.Err)
}

// Unwrap returns Err.
func (e *DatagramError) Unwrap() error { return e.Err }

// DatagramCounters are what a datagram socket has done since it was opened. On EngineStd only Received, ReceivedBytes,
// Sent, SentBytes, SendErrors and SendsRefused are known.
type DatagramCounters struct {
	Received, ReceivedBytes uint64
	// ReceivedBuffers counts what they came in: with WithGRO one buffer may hold several.
	ReceivedBuffers uint64
	// KernelDrops counts buffers that the kernel dropped because the socket's memory was full. Pauses counts the times
	// that the handler held all of the socket's slots: without them, the loop was too slow.
	KernelDrops, Pauses uint64
	Truncated           uint64
	Sent, SentBytes     uint64
	// Sends counts what they took: with segments one may be several datagrams.
	Sends                    uint64
	SendsRefused, SendErrors uint64
	// DirectSends counts those of Sends that goroutines made by themselves while the loop slept.
	DirectSends uint64
}

// DatagramSocket is a datagram socket of a loop. Its methods may be called from any goroutine, at any time, but those
// marked "loop" only in callbacks of its loop. After it is closed they return net.ErrClosed.
type DatagramSocket struct {
	below   datagramBackend
	network string
	local   net.Addr
	remote  net.Addr // of one that is connected to a peer
	loop    int
	gone    chan struct{} // closed with the last event
}

// datagramBackend is a socket on an engine.
type datagramBackend interface {
	// send queues a copy; to is the peer as the engine takes it.
	send(message *Message, to peer) error
	queued() int
	close() error
	counters() (DatagramCounters, error)
	// setMember joins a group or leaves it.
	setMember(group multicastGroup, member bool) error
	// onSocket runs f with the options of the socket, and waits for it. It returns an error if the socket has gone.
	onSocket(f func(socket packetSocket) error) error
	here() bool
	// wakesReader, readerRuns and wokeSomebody are those of a home.
	wakesReader()
	readerRuns()
	wokeSomebody()
	// returnLease gives the memory of a buffer back, which was kept by the sink. Any goroutine.
	returnLease(lease uint64)
}

// peer is whom to send to: an IP address and port, or the name of a Unix socket.
type peer struct {
	address netip.AddrPort
	name    string
	unix    bool
}

// datagramSink is what a loop reports a socket's events to. All methods are called on the loop.
type datagramSink interface {
	// received is told of what a turn has brought. Its memory ends with the call, but for a leaseKeeper.
	received(s *DatagramSocket, batch []received)
	writable(s *DatagramSocket)
	failed(s *DatagramSocket, err *DatagramError)
	closed(s *DatagramSocket, err error)
}

// leaseKeeper is a datagramSink that keeps the memory of what it receives, for goroutines that read, and gives it back by
// returnLease: before its closed returns, all of it.
type leaseKeeper interface{ keepsLeases() }

// received is a buffer with datagrams of one peer.
type received struct {
	Datagram
	segment int    // bytes of each but the last, if there are several
	count   int    // datagrams
	lease   uint64 // to be given back
}

// each calls f with the datagrams of the buffer, one by one.
func (r *received) each(f func(Datagram)) {
	if r.count == 1 {
		f(r.Datagram)
		return
	}
	one := r.Datagram
	for rest := r.Bytes; len(rest) > 0; rest = rest[len(one.Bytes):] {
		one.Bytes = rest[:min(r.segment, len(rest))]
		f(one)
	}
}

// Send queues a copy of the message, all of it or nothing. What is queued in one turn of the loop leaves together.
// Errors: ErrFull (OnWritable follows), ErrTooLarge (more than the high-water mark), syscall.EMSGSIZE, net.ErrClosed. It
// never waits; what goes wrong later is told by OnError.
func (s *DatagramSocket) Send(message Message) error {
	return s.below.send(&message, peer{address: message.To})
}

// WriteTo is Send of bytes to a peer.
func (s *DatagramSocket) WriteTo(p []byte, to netip.AddrPort) error {
	return s.below.send(&Message{Bytes: p}, peer{address: to})
}

// Reply is Send of bytes to who has sent a datagram, from the address that it was sent to, if that is known. Loop.
func (s *DatagramSocket) Reply(to *Datagram, p []byte) error {
	source := to.Local
	if source.IsMulticast() {
		source = netip.Addr{}
	}
	return s.below.send(&Message{Bytes: p, Source: source}, peer{to.Peer, to.name, to.unix})
}

// Queued is the number of bytes that were queued and have not left.
func (s *DatagramSocket) Queued() int { return s.below.queued() }

// JoinGroup makes the socket a member of a multicast group, on the interface, or on that of the kernel's choice if it is
// nil. It does not wait: what the kernel refuses is told by OnError, such as syscall.ENODEV where no interface leads to the
// group and syscall.EADDRINUSE if it is a member. Errors: of what is no group of the socket's family, net.ErrClosed, and
// on EngineStd errors.ErrUnsupported. To share the port with other programs, open the socket WithMulticastGroup.
func (s *DatagramSocket) JoinGroup(group netip.Addr, on *net.Interface) error {
	return s.setMember(group, on, true)
}

// LeaveGroup ends what JoinGroup or WithMulticastGroup with the same interface began. It does not wait either: OnError is
// told syscall.EADDRNOTAVAIL if the socket is no member.
func (s *DatagramSocket) LeaveGroup(group netip.Addr, on *net.Interface) error {
	return s.setMember(group, on, false)
}

func (s *DatagramSocket) setMember(group netip.Addr, on *net.Interface, member bool) error {
	one := newMulticastGroup(group, on)
	if err := one.check(); err != nil {
		return fmt.Errorf("quoit: %w", err)
	}
	if s.network == "unixgram" || s.network == "udp4" && !group.Is4() || s.network == "udp6" && group.Is4() {
		return fmt.Errorf("quoit: %v is not a group for a socket of %s", group, s.network)
	}
	return s.below.setMember(one, member)
}

// Close closes the socket after what was queued has left, at the latest after the time of WithCloseLimit. It does not
// wait. Nothing more is delivered but OnClose.
func (s *DatagramSocket) Close() error { return s.below.close() }

// LocalAddr is where it is bound.
func (s *DatagramSocket) LocalAddr() net.Addr { return s.local }

// Loop is the number of the socket's loop: from 0.
func (s *DatagramSocket) Loop() int { return s.loop }

// Counters is a snapshot. It waits for the loop's next turn, but in callbacks.
func (s *DatagramSocket) Counters() (DatagramCounters, error) { return s.below.counters() }

// datagramHandlerSink calls a DatagramHandler.
type datagramHandlerSink struct {
	handler DatagramHandler
	config  *config
	batch   []Datagram // used again; loop
}

func (k *datagramHandlerSink) received(s *DatagramSocket, batch []received) {
	all := k.batch[:0]
	for index := range batch {
		batch[index].each(func(one Datagram) { all = append(all, one) })
	}
	defer func() {
		if recovered := recover(); recovered != nil {
			k.panicked(s, recovered)
		}
		clear(all)
		k.batch = all
	}()
	k.handler.OnDatagram(s, all)
}

func (k *datagramHandlerSink) writable(s *DatagramSocket) {
	defer k.guard(s)
	k.handler.OnWritable(s)
}

func (k *datagramHandlerSink) failed(s *DatagramSocket, err *DatagramError) {
	defer k.guard(s)
	k.handler.OnError(s, err)
}

func (k *datagramHandlerSink) closed(s *DatagramSocket, err error) {
	defer k.guard(s)
	k.handler.OnClose(s, err)
}

func (k *datagramHandlerSink) guard(s *DatagramSocket) {
	if recovered := recover(); recovered != nil {
		k.panicked(s, recovered)
	}
}

// panicked reports a panic. The socket goes on: one datagram must not end the service for all peers.
func (k *datagramHandlerSink) panicked(s *DatagramSocket, recovered any) {
	if k.config.crash {
		panic(recovered)
	}
	k.config.logger.Error("quoit: a handler of datagrams panicked; its socket goes on",
		"panic", fmt.Sprint(recovered), "socket", fmt.Sprint(s.LocalAddr()), "stack", string(debug.Stack()))
}

// checkMessage returns why a message cannot be queued on any engine.
func checkMessage(message *Message, to peer, s *DatagramSocket) error {
	largest := len(message.Bytes)
	if message.SegmentSize > 0 {
		largest = min(largest, message.SegmentSize)
	}
	unix := s.network == "unixgram"
	switch {
	case message.SegmentSize < 0 || message.SegmentSize > maxUDPPayload:
		return fmt.Errorf("quoit: a segment size of %d: it must be from 0 to 65,527", message.SegmentSize)
	case s.remote != nil && to == peer{}: // to whom it is connected
	case to.unix != unix, !unix && !to.address.IsValid(), unix && to.name == "":
		return errPeer
	}
	if !unix && largest > s.mostTo(to) {
		return errMessageSize
	}
	return nil
}

// mostTo returns the largest payload that the kernel takes for a peer; the zero value is whom the socket is connected to.
func (s *DatagramSocket) mostTo(to peer) int {
	address := to.address.Addr()
	if connected, ok := s.remote.(*net.UDPAddr); ok && to == (peer{}) {
		address = connected.AddrPort().Addr()
	}
	if address.Unmap().Is4() {
		return maxUDPv4Payload
	}
	return maxUDPPayload
}

// errPeer is that of a send to nobody who could be reached by the socket.
var errPeer = errors.New("quoit: the peer has no address that the socket could send to")
