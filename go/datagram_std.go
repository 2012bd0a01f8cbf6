package quoit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// stdSocket is a datagram socket of package net: a goroutine reads it, and who sends writes.
type stdSocket struct {
	loop   *stdLoop
	socket *DatagramSocket
	sink   datagramSink
	net    net.PacketConn
	most   int // bytes of a datagram

	mu      sync.Mutex
	counts  DatagramCounters
	closing bool
}

// listenStdPacket is net.ListenPacket with what the configuration asks for.
func listenStdPacket(network, address string, config *config) (net.PacketConn, error) {
	var found net.PacketConn
	var err error
	switch len(config.groups) {
	case 0:
		found, err = net.ListenPacket(network, address)
	case 1:
		found, err = listenStdGroup(network, address, config.groups[0])
	default:
		return nil, errors.New("quoit: without libquoit a socket can be a member of one multicast group only")
	}
	if err != nil {
		return nil, err
	}
	buffers, ok := found.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	if ok && config.receiveBuffer > 0 {
		err = buffers.SetReadBuffer(config.receiveBuffer)
	}
	if ok && config.sendBuffer > 0 {
		err = errors.Join(err, buffers.SetWriteBuffer(config.sendBuffer))
	}
	if err != nil {
		return nil, errors.Join(err, found.Close())
	}
	return found, nil
}

func listenStdGroup(network, address string, group multicastGroup) (net.PacketConn, error) {
	bound, err := net.ResolveUDPAddr(network, address)
	if err != nil {
		return nil, err
	}
	var by *net.Interface
	if group.index > 0 {
		if by, err = net.InterfaceByIndex(group.index); err != nil {
			return nil, err
		}
	}
	return net.ListenMulticastUDP(network, by, &net.UDPAddr{IP: group.address.AsSlice(), Port: bound.Port})
}

// openDatagram implements backend.
func (l *stdLoop) openDatagram(
	socket *DatagramSocket, address string, config *config, _ bool, to datagramSink,
) error {
	found, err := listenStdPacket(socket.network, withoutUnix(address), config)
	if err != nil {
		return err
	}
	socket.local = found.LocalAddr()
	s := &stdSocket{loop: l, socket: socket, sink: to, net: found, most: config.maxDatagram}
	socket.below = s
	l.mu.Lock()
	ended := l.ended
	if !ended {
		if l.sockets == nil {
			l.sockets = make(map[*stdSocket]struct{})
		}
		l.sockets[s] = struct{}{}
	}
	l.mu.Unlock()
	if ended {
		return errors.Join(ErrShutdown, found.Close())
	}
	go s.read()
	return nil
}

// withoutUnix takes the library's prefix off the path of a Unix socket.
func withoutUnix(address string) string {
	_, rest := splitServeAddress(address)
	return rest
}

// endDatagrams closes the sockets that are left, and waits for them. The loop takes no new ones.
func (l *stdLoop) endDatagrams() {
	l.mu.Lock()
	var left []*stdSocket
	for s := range l.sockets {
		left = append(left, s)
	}
	l.mu.Unlock()
	for _, s := range left {
		_ = s.close() // or it was closed
	}
	for _, s := range left {
		<-s.socket.gone
	}
}

func (s *stdSocket) read() {
	returned := false
	defer func() {
		if returned {
			return
		}
		if recovered := recover(); recovered != nil {
			panic(recovered)
		}
		reportExit(s.loop.group.config, nil)
		go s.read()
	}()
	failure := s.receive()
	returned = true // and is not begun again, also if the handler calls runtime.Goexit when it is told
	s.lost(failure)
}

// lost reports the end of the socket.
func (s *stdSocket) lost(failure error) {
	told := false
	defer func() {
		if !told {
			if recovered := recover(); recovered != nil {
				panic(recovered)
			}
			reportExit(s.loop.group.config, nil)
		}
		s.loop.mu.Lock()
		delete(s.loop.sockets, s)
		s.loop.mu.Unlock()
		close(s.socket.gone)
	}()
	_ = s.close() // or it was closed
	s.report(func() { s.sink.closed(s.socket, failure) })
	told = true
}

// receive reports what comes until the socket is closed, and returns nil then, or until it fails.
func (s *stdSocket) receive() error {
	// One byte more tells what was too long.
	memory := make([]byte, s.most+1)
	for {
		n, from, err := s.net.ReadFrom(memory)
		if err != nil {
			s.mu.Lock()
			closing := s.closing
			s.mu.Unlock()
			if closing || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if isTemporary(err) {
				s.report(func() { s.sink.failed(s.socket, &DatagramError{Err: err}) })
				continue
			}
			return err
		}
		one := received{count: 1}
		one.Truncated = n > s.most
		one.Bytes = memory[:min(n, s.most)]
		switch from := from.(type) {
		case *net.UDPAddr:
			one.Peer = from.AddrPort()
			one.Peer = netip.AddrPortFrom(one.Peer.Addr().Unmap(), one.Peer.Port())
		case *net.UnixAddr:
			one.unix = true
			if from != nil {
				one.name = from.Name
			}
		default:
			one.unix = true
		}
		s.mu.Lock()
		s.counts.Received++
		s.counts.ReceivedBytes += uint64(len(one.Bytes))
		if one.Truncated {
			s.counts.Truncated++
		}
		closing := s.closing
		s.mu.Unlock()
		if !closing {
			s.report(func() { s.sink.received(s.socket, []received{one}) })
		}
	}
}

// isTemporary is whether a socket goes on after a failed read: what earlier datagrams have met.
func isTemporary(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && (operation.Temporary() || refusedByPeer(err))
}

// report calls the sink, as on a loop.
func (s *stdSocket) report(f func()) {
	s.loop.turn.Lock()
	defer s.loop.turn.Unlock()
	f()
}

// send implements datagramBackend: what the kernel refuses is told as it is told for libquoit, by OnError.
func (s *stdSocket) send(message *Message, to peer) error {
	if err := checkMessage(message, to, s.socket); err != nil {
		return err
	}
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	if closing {
		return errClosed
	}
	if len(message.Bytes) > s.loop.group.config.highWater {
		return ErrTooLarge
	}
	step := len(message.Bytes)
	if message.SegmentSize > 0 {
		step = message.SegmentSize
	}
	rest := message.Bytes
	for first := true; first || len(rest) > 0; first = false {
		one := rest[:min(step, len(rest))]
		rest = rest[len(one):]
		err := s.write(one, to)
		s.mu.Lock()
		if err == nil {
			s.counts.Sent++
			s.counts.SentBytes += uint64(len(one))
		} else {
			s.counts.SendErrors++
		}
		s.mu.Unlock()
		if errors.Is(err, net.ErrClosed) {
			return errClosed
		}
		if err != nil {
			failure := &DatagramError{Err: err, Size: len(one)}
			s.loop.post(func() { s.sink.failed(s.socket, failure) })
			return nil
		}
	}
	return nil
}

func (s *stdSocket) write(p []byte, to peer) error {
	switch conn := s.net.(type) {
	case *net.UDPConn:
		_, err := conn.WriteToUDPAddrPort(p, to.address)
		return err
	case *net.UnixConn:
		_, err := conn.WriteToUnix(p, &net.UnixAddr{Name: to.name, Net: "unixgram"})
		return err
	}
	return fmt.Errorf("quoit: package net returned a %T", s.net)
}

func (s *stdSocket) queued() int { return 0 }

// close implements datagramBackend.
func (s *stdSocket) close() error {
	s.mu.Lock()
	closing := s.closing
	s.closing = true
	s.mu.Unlock()
	if closing {
		return errClosed
	}
	return s.net.Close()
}

// setMember implements datagramBackend. Package net has no call for it.
func (s *stdSocket) setMember(multicastGroup, bool) error {
	return fmt.Errorf("quoit: without libquoit a socket cannot join a group once it is open: %w", errors.ErrUnsupported)
}

func (s *stdSocket) counters() (DatagramCounters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return DatagramCounters{}, errClosed
	}
	return s.counts, nil
}

// onSocket implements datagramBackend.
func (s *stdSocket) onSocket(f func(socket packetSocket) error) error {
	return f(stdPacketOptions{s.net})
}

func (s *stdSocket) here() bool         { return false } // who sends may wait
func (s *stdSocket) wakesReader()       {}
func (s *stdSocket) readerRuns()        {}
func (s *stdSocket) wokeSomebody()      {}
func (s *stdSocket) returnLease(uint64) {} // its memory is read into again
