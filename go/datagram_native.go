//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/native"
)

const (
	// socketSends is the most sends that wait in Go, and as many that the library has, for one socket.
	socketSends = 512
	// tokenBatch is that of the last send of a batch, whose outcome is that of all.
	tokenBatch = 1
)

// nativeSocket is a datagram socket of libquoit. One batch of sends is in the library's hands at a time, so that it has
// room for all of them, and what does not fit waits here, where Send can refuse it.
type nativeSocket struct {
	loop   *nativeLoop
	socket *DatagramSocket
	sink   datagramSink
	high   int
	low    int
	ask    func() // s.flush, made once

	// The loop's thread only.
	id      native.ID
	batch   []received // of the turn under way
	closing bool       // the library was told

	mu      sync.Mutex
	direct  *native.DirectDatagramSender // nil for one whose users are on the loop, and once it has gone
	name    [128]byte                    // of the peer of the send under way
	sends   []nativeSend
	bytes   *block // of sends: peers and payloads
	total   int    // bytes of payloads here, and in the library
	flying  int    // of those, in the library
	flies   bool   // a batch is in the library
	refused bool   // a send was
	asked   bool   // the loop will call flush
	returns []uint64
	ending  bool
	ended   bool
}

// nativeSend is a send that waits; its bytes lie in the socket's block, the peer first.
type nativeSend struct {
	at, peer, length int
	segment          uint16
	ecn              uint8
	source           netip.Addr
}

// datagramTable is a loop's part in datagrams. The loop's thread only.
type datagramTable struct {
	sockets   map[native.ID]*nativeSocket
	brought   []*nativeSocket // those to which the turn has brought something
	delivered int             // of brought
}

// openDatagram implements backend.
func (l *nativeLoop) openDatagram(
	socket *DatagramSocket, address string, config *config, reusePort bool, to datagramSink,
) error {
	options, groups := config.datagramOptions()
	if reusePort {
		options.Flags |= native.DatagramReusePort
	}
	if socket.network == "udp6" {
		options.Flags |= native.DatagramIPv6Only
	}
	var peer string
	if socket.remote != nil {
		peer = withNumber(socket.remote.String())
	}
	address, ofGroup := ofThisHost(address)
	if ofGroup {
		options.Flags |= native.DatagramReuseAddress
	}
	bound, err := native.BindDatagram(libraryAddress(address), options, groups, peer)
	if err != nil {
		return err
	}
	socket.local = parseDatagramAddress(bound.Address())
	s := &nativeSocket{loop: l, socket: socket, sink: to, high: config.highWater, low: config.lowWater}
	s.ask = s.flush
	socket.below = s
	err = ErrShutdown
	started := l.call(func() {
		var id native.ID
		if id, err = l.library.OpenDatagram(bound); err != nil {
			return
		}
		s.id = id
		if _, keeps := to.(leaseKeeper); keeps {
			s.direct, _ = l.library.DirectDatagramSender(id) // it is open
		}
		if l.datagrams.sockets == nil {
			l.datagrams.sockets = make(map[native.ID]*nativeSocket)
		}
		l.datagrams.sockets[id] = s
	})
	if !started {
		bound.Close()
	}
	return err
}

// ofThisHost is where a socket is bound that is to listen on an address: for a multicast group, on all of this host's, as with
// package net.
func ofThisHost(address string) (bound string, ofGroup bool) {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || !parsed.Addr().IsMulticast() {
		return address, false
	}
	all := netip.IPv6Unspecified()
	if parsed.Addr().Is4() {
		all = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(all, parsed.Port()).String(), true
}

// datagramOptions are those of the library, and the groups to join.
func (c *config) datagramOptions() (native.DatagramOptions, []native.MulticastGroup) {
	options := native.DefaultDatagramOptions()
	options.MaxDatagram, options.Slots = uint32(c.maxDatagram), uint32(c.datagramSlots)
	if c.gro {
		options.GRO = native.GROTransparent
	}
	if c.details {
		options.Flags |= native.DatagramTellECN | native.DatagramTellTime | native.DatagramTellLocal
	}
	if c.broadcast {
		options.Flags |= native.DatagramBroadcast
	}
	if c.errors {
		options.Flags |= native.DatagramTellUnreachable
	}
	options.ReceiveBuffer, options.SendBuffer = uint32(c.receiveBuffer), uint32(c.sendBuffer)
	// Room for a whole batch, which is what waits here at most.
	options.HighWater, options.LowWater = uint32(c.highWater)+1, 0
	options.QueuedSends = socketSends + 1
	var groups []native.MulticastGroup
	for _, group := range c.groups {
		groups = append(groups, group.native())
	}
	if len(groups) > 0 {
		// Other programs of this host may be members, too.
		options.Flags |= native.DatagramReuseAddress
	}
	return options, groups
}

func (g multicastGroup) native() native.MulticastGroup {
	one := native.MulticastGroup{Interface: uint32(g.index)}
	one.AddressLength = uint32(copy(one.Address[:], g.address.AsSlice()))
	return one
}

func parseDatagramAddress(text string) net.Addr {
	if path, isUnix := strings.CutPrefix(text, unixPrefix); isUnix {
		return &net.UnixAddr{Name: unescapeName(path), Net: "unixgram"}
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return &net.UDPAddr{}
	}
	return net.UDPAddrFromAddrPort(withName(address))
}

// sockaddr forms of Linux: offsets and lengths.
const (
	sockaddrIn4  = 16
	sockaddrIn6  = 28
	sockaddrUnix = 2 // before the name
)

// appendSockaddr appends a peer as the kernel takes it.
func appendSockaddr(to []byte, p peer) []byte {
	if p.unix {
		to = binary.NativeEndian.AppendUint16(to, syscall.AF_UNIX)
		if name, abstract := strings.CutPrefix(p.name, "@"); abstract {
			return append(append(to, 0), name...)
		}
		return append(append(to, p.name...), 0)
	}
	address := p.address.Addr()
	if address.Is4() {
		to = binary.NativeEndian.AppendUint16(to, syscall.AF_INET)
		to = binary.BigEndian.AppendUint16(to, p.address.Port())
		four := address.As4()
		return append(append(to, four[:]...), make([]byte, 8)...)
	}
	to = binary.NativeEndian.AppendUint16(to, syscall.AF_INET6)
	to = binary.BigEndian.AppendUint16(to, p.address.Port())
	to = append(to, 0, 0, 0, 0)
	sixteen := address.As16()
	return binary.NativeEndian.AppendUint32(append(to, sixteen[:]...), zoneNumber(address.Zone()))
}

// readSockaddr makes a peer of what the kernel wrote.
func readSockaddr(from []byte, d *Datagram) {
	if len(from) < sockaddrUnix {
		d.unix = true
		return
	}
	switch family := binary.NativeEndian.Uint16(from); {
	case family == syscall.AF_INET && len(from) >= sockaddrIn4:
		d.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte(from[4:8])), binary.BigEndian.Uint16(from[2:]))
	case family == syscall.AF_INET6 && len(from) >= sockaddrIn6:
		address := netip.AddrFrom16([16]byte(from[8:24])).Unmap()
		if scope := binary.NativeEndian.Uint32(from[24:]); scope != 0 && address.Is6() {
			address = address.WithZone(zoneName(scope))
		}
		d.Peer = netip.AddrPortFrom(address, binary.BigEndian.Uint16(from[2:]))
	default:
		d.unix = true
		switch name := from[sockaddrUnix:]; {
		case len(name) == 0:
		case name[0] == 0:
			d.name = "@" + string(name[1:])
		default:
			d.name = strings.TrimRight(string(name), "\x00")
		}
	}
}

// datagramEvent reports one event that concerns datagrams.
func (l *nativeLoop) datagramEvent(event *native.Event) {
	s := l.datagrams.sockets[event.Connection]
	switch event.Kind {
	case native.EventDatagrams:
		if s == nil || s.closing {
			l.push(native.Command{Kind: native.CommandReturnLease, Lease: event.Lease, Token: tokenOther})
			return
		}
		if len(s.batch) == 0 {
			l.datagrams.brought = append(l.datagrams.brought, s)
		}
		s.batch = append(s.batch, view(event))
	case native.EventDatagramSent:
		if s != nil && event.Token == tokenBatch {
			defer s.landed()
			if event.Error != 0 {
				s.sink.failed(s.socket, &DatagramError{Err: syscall.Errno(-event.Error)})
			}
		}
	case native.EventDatagramRefused:
		if s == nil {
			return
		}
		// The socket is going, or the kernel refuses what only it can know.
		if event.Token != 0 {
			defer s.landed()
		}
		if event.Error != 0 {
			s.sink.failed(s.socket, &DatagramError{Err: syscall.Errno(-event.Error)})
		}
	case native.EventDatagramError:
		if s != nil && event.Error != 0 {
			s.sink.failed(s.socket, datagramError(event))
		}
	case native.EventDatagramClosed:
		if s != nil {
			delete(l.datagrams.sockets, event.Connection)
			var err error
			if event.Error != 0 {
				err = syscall.Errno(-event.Error)
			}
			s.lost(err)
		}
	}
}

// datagramError makes of an event what sinks take.
func datagramError(event *native.Event) *DatagramError {
	err := &DatagramError{Err: syscall.Errno(-event.Error)}
	if event.Reason == native.DatagramErrorUnreachable {
		var to Datagram
		readSockaddr(unsafe.Slice((*byte)(event.Data), event.Length), &to)
		err.Peer = to.Peer
	} else {
		err.Size = int(event.Length)
	}
	return err
}

// view makes of an event what sinks take.
func view(event *native.Event) received {
	from := (*native.Datagrams)(event.Data)
	r := received{segment: int(from.SegmentSize), count: int(from.Count), lease: event.Lease}
	r.Bytes = unsafe.Slice((*byte)(from.Data), from.Length)
	r.Truncated = from.Flags&native.DatagramsTruncated != 0
	r.Interface = int(from.Interface)
	if from.Flags&native.DatagramsECN != 0 {
		r.ECN = from.ECN
	}
	if from.TimestampNS != 0 {
		r.Time = time.Unix(0, from.TimestampNS)
	}
	if from.LocalLength > 0 {
		r.Local, _ = netip.AddrFromSlice(from.Local[:from.LocalLength])
		r.Local = r.Local.Unmap()
	}
	readSockaddr(unsafe.Slice((*byte)(from.Peer), from.PeerLength), &r.Datagram)
	return r
}

// deliverDatagrams hands out what a turn has brought.
func (l *nativeLoop) deliverDatagrams() {
	brought := &l.datagrams.brought
	for l.datagrams.delivered < len(*brought) {
		s := (*brought)[l.datagrams.delivered]
		(*brought)[l.datagrams.delivered] = nil
		l.datagrams.delivered++
		s.deliver()
	}
	*brought, l.datagrams.delivered = (*brought)[:0], 0
}

// deliver hands out what a turn has brought to this socket.
func (s *nativeSocket) deliver() {
	batch := s.batch
	s.batch = nil
	if len(batch) > 0 {
		_, keeps := s.sink.(leaseKeeper)
		delivers := !s.isEnding()
		if !keeps || !delivers {
			s.giveBack(batch) // with the next turn
		}
		if delivers {
			s.sink.received(s.socket, batch)
		}
		clear(batch)
	}
	if !s.closing {
		s.batch = batch[:0]
	}
}

func (s *nativeSocket) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

func (s *nativeSocket) giveBack(batch []received) {
	for index := range batch {
		s.loop.push(native.Command{Kind: native.CommandReturnLease, Lease: batch[index].lease, Token: tokenOther})
	}
}

// returnLease returns a lease from any goroutine. The loop is asked to collect them when a quarter is back, or nothing
// else will bring it around.
func (s *nativeSocket) returnLease(lease uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return // with the loop's memory, or its remote
	}
	s.returns = append(s.returns, lease)
	if len(s.returns) >= max(1, s.loop.group.config.datagramSlots/4) {
		s.askLoop()
	}
}

// askLoop has the loop call flush. The lock is held.
func (s *nativeSocket) askLoop() {
	if !s.asked {
		s.asked = s.loop.post(s.ask)
	}
}

// send implements datagramBackend.
func (s *nativeSocket) send(message *Message, to peer) error {
	if err := checkMessage(message, to, s.socket); err != nil {
		return err
	}
	length := len(message.Bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return errClosed
	case length > s.high:
		return ErrTooLarge
	case s.total+length > s.high || len(s.sends) >= socketSends:
		s.refused = true
		return ErrFull
	}
	var name []byte // none is to whom it is connected
	if to != (peer{}) {
		name = appendSockaddr(s.name[:0], to)
	}
	if s.sendNow(name, message) {
		return nil
	}
	need := len(name) + length
	b, err := s.bytes, error(nil)
	if b == nil {
		b, err = s.loop.pool.get(max(need, smallestBlock))
	} else if b.room() < need {
		b, err = s.loop.pool.grow(b, b.length+max(need, b.length))
	}
	if err != nil {
		return err
	}
	s.bytes = b
	one := nativeSend{
		at: b.length, peer: len(name), length: length,
		segment: uint16(message.SegmentSize), ecn: message.ECN & 3, source: message.Source,
	}
	b.length += copy(b.memory[b.length:], name)
	b.length += copy(b.memory[b.length:], message.Bytes)
	s.sends = append(s.sends, one)
	s.total += length
	if !s.flies {
		s.askLoop() // otherwise the end of that batch does
	}
	return nil
}

// flush gives the library what waits. On the loop.
func (s *nativeSocket) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = false
	if s.ended {
		return
	}
	l := s.loop
	for _, lease := range s.returns {
		l.push(native.Command{Kind: native.CommandReturnLease, Lease: lease, Token: tokenOther})
	}
	s.returns = s.returns[:0]
	if !s.flies && len(s.sends) > 0 {
		s.takeOff()
	}
	if s.ending && !s.closing && len(s.sends) == 0 {
		s.closing = true
		l.push(native.Command{Kind: native.CommandCloseDatagram, Target: s.id, Token: tokenOther})
	}
}

// takeOff makes a command of all that waits. The lock is held; on the loop.
func (s *nativeSocket) takeOff() {
	l := s.loop
	count := len(s.sends)
	array, err := l.pool.get(count * int(unsafe.Sizeof(native.DatagramSend{})))
	if err != nil {
		s.tryLater()
		return
	}
	sends := unsafe.Slice((*native.DatagramSend)(unsafe.Pointer(unsafe.SliceData(array.memory))), count)
	start := unsafe.Pointer(unsafe.SliceData(s.bytes.memory))
	for index, one := range s.sends {
		send := &sends[index]
		*send = native.DatagramSend{
			To: unsafe.Add(start, one.at), ToLength: uint32(one.peer),
			Data: unsafe.Add(start, one.at+one.peer), Length: uint32(one.length),
			SegmentSize: one.segment, ECN: one.ecn,
		}
		if one.ecn != 0 {
			send.Flags = native.FlagECN
		}
		if one.source.IsValid() {
			send.SourceLength = uint8(copy(send.Source[:], one.source.AsSlice()))
		}
		s.flying += one.length
	}
	sends[count-1].Token = tokenBatch
	l.push(native.Command{
		Kind: native.CommandSendDatagrams, Target: s.id, Token: tokenOther,
		Data: unsafe.Pointer(unsafe.SliceData(array.memory)), Length: uint32(count),
	})
	// The library copies during the turn.
	l.scratch = append(l.scratch, array, s.bytes)
	s.sends, s.bytes, s.flies = s.sends[:0], nil, true
}

// tryLater has the loop call flush when there may be memory again. On the loop.
func (s *nativeSocket) tryLater() {
	const wait = 10 * time.Millisecond
	l := s.loop
	l.token++
	l.timers[l.token] = s.ask
	l.push(native.Command{Kind: native.CommandSetTimer, Token: l.token, TimeNS: wait.Nanoseconds()})
}

// landed takes in that a batch has left.
func (s *nativeSocket) landed() {
	s.mu.Lock()
	if !s.flies {
		s.mu.Unlock()
		return
	}
	s.total -= s.flying
	s.flying, s.flies = 0, false
	if len(s.sends) > 0 || s.ending {
		s.askLoop()
	}
	room := s.refused && !s.ending && s.total <= s.low
	if room {
		s.refused = false
	}
	s.mu.Unlock()
	if room {
		s.sink.writable(s.socket)
	}
}

// queued implements datagramBackend.
func (s *nativeSocket) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// setMember implements datagramBackend.
func (s *nativeSocket) setMember(group multicastGroup, member bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errClosed
	}
	kind := uint16(native.CommandLeaveMulticast)
	if member {
		kind = native.CommandJoinMulticast
	}
	l := s.loop
	posted := l.post(func() {
		memory, err := l.pool.get(int(unsafe.Sizeof(native.MulticastGroup{})))
		if err != nil {
			s.sink.failed(s.socket, &DatagramError{Err: err})
			return
		}
		given := unsafe.Pointer(unsafe.SliceData(memory.memory))
		*(*native.MulticastGroup)(given) = group.native()
		// Without a token, by which a refusal is told from that of a batch.
		l.push(native.Command{Kind: kind, Target: s.id, Data: given})
		// The library reads it during the turn.
		l.scratch = append(l.scratch, memory)
	})
	if !posted {
		return errClosed
	}
	return nil
}

// close implements datagramBackend.
func (s *nativeSocket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errClosed
	}
	s.ending = true
	s.askLoop()
	return nil
}

func (s *nativeSocket) here() bool    { return s.loop.here() }
func (s *nativeSocket) wakesReader()  { s.loop.wakesReader() }
func (s *nativeSocket) readerRuns()   { s.loop.readerRuns() }
func (s *nativeSocket) wokeSomebody() { s.loop.wokeSomebody() }

// whileOpen runs f on the loop, and waits for it; errClosed if the socket has gone.
func (s *nativeSocket) whileOpen(f func() error) error {
	err := error(errClosed)
	called := s.loop.call(func() {
		if s.loop.datagrams.sockets[s.id] == s {
			err = f()
		}
	})
	if !called {
		return errClosed
	}
	return err
}

// onSocket implements datagramBackend.
func (s *nativeSocket) onSocket(f func(socket packetSocket) error) error {
	return s.whileOpen(func() error {
		if fd := s.loop.library.DatagramFD(s.id); fd >= 0 {
			return f(descriptor(fd))
		}
		return errClosed
	})
}

// counters implements datagramBackend.
func (s *nativeSocket) counters() (DatagramCounters, error) {
	var found native.DatagramCounters
	err := s.whileOpen(func() (err error) {
		found, err = s.loop.library.DatagramCounters(s.id)
		return err
	})
	return DatagramCounters{
		Received: found.Received, ReceivedBytes: found.ReceivedBytes, ReceivedBuffers: found.ReceivedBuffers,
		KernelDrops: found.KernelDrops, Pauses: found.Pauses, Truncated: found.Truncated,
		Sent: found.Sent, SentBytes: found.SentBytes, Sends: found.Sends,
		SendsRefused: found.SendsRefused, SendErrors: found.SendErrors, DirectSends: found.DirectSends,
	}, err
}

// lost reports the end of a socket, on the loop.
func (s *nativeSocket) lost(err error) {
	s.closing = true
	defer s.bury()
	s.sink.closed(s.socket, err)
}

// bury gives back what is left of a socket that has ended.
func (s *nativeSocket) bury() {
	s.mu.Lock()
	s.ending, s.ended = true, true
	if s.bytes != nil {
		s.loop.pool.put(s.bytes)
	}
	s.sends, s.bytes, s.total, s.flying = nil, nil, 0, 0
	if s.direct != nil {
		s.direct.Release()
		s.direct = nil
	}
	returns := s.returns
	s.returns = nil
	s.mu.Unlock()
	// What is left of the batch is not delivered any more.
	s.giveBack(s.batch)
	s.batch = nil
	for _, lease := range returns {
		s.loop.push(native.Command{Kind: native.CommandReturnLease, Lease: lease, Token: tokenOther})
	}
	close(s.socket.gone)
}

// finishDatagrams ends all sockets that are left, with the loop.
func (l *nativeLoop) finishDatagrams() {
	for id, s := range l.datagrams.sockets {
		delete(l.datagrams.sockets, id)
		s.lost(l.why)
	}
}
