package quoit

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// stdLoop is a loop on package net: a goroutine reads each connection, and one more writes while something is queued.
// What they report is reported one after the other, as on a loop of libquoit.
type stdLoop struct {
	index  int
	unique int // number, among those of the process
	group  *Loops
	pool   *blocks

	turn sync.Mutex // held while a handler runs

	mu          sync.Mutex
	connections map[*Conn]*stdConn
	sockets     map[*stdSocket]struct{}
	posted      []func()
	running     bool // a goroutine runs what was posted
	ticks       map[*time.Timer]struct{}
	ended       bool
	accepted    uint64
	idle        sync.Cond // signalled when the last connection has gone
}

// stdNumbers are apart from those of the library's loops, which say how many of these wait in which way.
var stdNumbers numbers

func newStdLoop(group *Loops, index int) *stdLoop {
	l := &stdLoop{
		index: index, group: group, pool: newBlocks(heap{}, group.config.highWater),
		connections: make(map[*Conn]*stdConn), ticks: make(map[*time.Timer]struct{}),
	}
	l.idle.L = &l.mu
	l.unique, _ = stdNumbers.take(math.MaxInt) // there are as many as memory has room for
	return l
}

func (l *stdLoop) number() int       { return l.index }
func (l *stdLoop) inProcess() int    { return l.unique }
func (l *stdLoop) settings() *config { return l.group.config }
func (l *stdLoop) memory() *blocks   { return l.pool }
func (l *stdLoop) here() bool        { return false } // a goroutine per connection may wait
func (l *stdLoop) wokeSomebody()     {}
func (l *stdLoop) wakesReader()      {}
func (l *stdLoop) readerRuns()       {}

func (l *stdLoop) sendNow(*Conn, []byte) int { return 0 }

func (l *stdLoop) queuedBelow(*Conn) int { return 0 }

func (l *stdLoop) find(c *Conn) *stdConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connections[c]
}

func (l *stdLoop) serve(c *Conn) {
	if s := l.find(c); s != nil {
		s.serve()
	}
}

func (l *stdLoop) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.posted = append(l.posted, f)
	if !l.running {
		l.running = true
		go l.runPosted()
	}
	return true
}

func (l *stdLoop) runPosted() {
	returned := false
	defer func() {
		if returned {
			return
		}
		if recovered := recover(); recovered != nil {
			panic(recovered)
		}
		// A function has called runtime.Goexit, and ends what it concerns itself.
		reportExit(l.group.config, nil)
		go l.runPosted() // the rest
	}()
	for {
		l.mu.Lock()
		if len(l.posted) == 0 {
			l.running = false
			l.mu.Unlock()
			returned = true
			return
		}
		f := l.posted[0]
		l.posted[0] = nil
		l.posted = l.posted[1:]
		l.mu.Unlock()
		l.inTurn(f)
	}
}

// inTurn runs f as on a loop, also if that calls runtime.Goexit.
func (l *stdLoop) inTurn(f func()) {
	l.turn.Lock()
	defer l.turn.Unlock()
	f()
}

func (l *stdLoop) every(f func() time.Duration) {
	var timer *time.Timer
	var step func()
	step = func() {
		next := f()
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case next <= 0 || l.ended:
			delete(l.ticks, timer)
		case timer == nil:
			timer = time.AfterFunc(next, func() { l.post(step) })
			l.ticks[timer] = struct{}{}
		default:
			timer.Reset(next)
		}
	}
	l.post(step)
}

func (l *stdLoop) each(f func(c *Conn)) {
	l.mu.Lock()
	all := make([]*Conn, 0, len(l.connections))
	for c := range l.connections {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		done := make(chan struct{})
		go func() {
			defer close(done) // also if a handler calls runtime.Goexit, which must not end the caller
			returned := false
			defer l.exited(c, &returned)
			l.inTurn(func() { f(c) })
			returned = true
		}()
		<-done
	}
}

// exited is deferred: it ends the connection whose handler has called runtime.Goexit, and so did not return.
func (l *stdLoop) exited(c *Conn, returned *bool) {
	if !*returned {
		if recovered := recover(); recovered != nil {
			panic(recovered)
		}
		l.inTurn(func() { reportExit(l.group.config, c) })
	}
}

func (l *stdLoop) counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	return Counters{
		// In the library's words: exporters refuse one name with two meanings.
		{Name: "connections", About: "Connections that exist.", Gauge: true, Value: uint64(len(l.connections))},
		{Name: "accepted", About: "Connections accepted.", Value: l.accepted},
	}
}

func (l *stdLoop) end() {
	l.mu.Lock()
	l.ended = true
	for timer := range l.ticks {
		timer.Stop()
	}
	var left []*Conn
	for c := range l.connections {
		left = append(left, c)
	}
	l.mu.Unlock()
	for _, c := range left {
		_ = c.abort(ErrShutdown) // or it has ended by itself
	}
	l.mu.Lock()
	for len(l.connections) > 0 {
		l.idle.Wait()
	}
	l.mu.Unlock()
	l.endDatagrams()
	l.pool.close()
	stdNumbers.give(l.unique)
}

func (l *stdLoop) listen(to *listening) error {
	network, address := splitServeAddress(to.address)
	listener, err := to.config.listenStd(network, address)
	if err != nil {
		return err
	}
	to.local = listener.Addr()
	var stopping sync.Once
	quit := make(chan struct{})
	to.stop = func() {
		stopping.Do(func() {
			close(quit)
			_ = listener.Close() // what it returns changes nothing
		})
	}
	go l.accept(listener, to, quit)
	l.group.addStd(to)
	return nil
}

// addStd keeps a listener to be closed with the group.
func (l *Loops) addStd(to *listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := uint64(len(l.accepts)) + 1
	for l.accepts[id] != nil {
		id++
	}
	l.accepts[id] = to
	go func() {
		<-to.stopped
		l.setAcceptor(id, nil)
	}()
}

func (l *stdLoop) accept(listener net.Listener, to *listening, quit <-chan struct{}) {
	const first, last = 5 * time.Millisecond, time.Second
	wait := first
	for {
		connection, err := listener.Accept()
		if err == nil {
			wait = first
			l.group.fewest().adopt(connection, to)
			continue
		}
		select {
		case <-quit:
			to.end(nil)
			return
		default:
		}
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ECONNABORTED) {
			to.stop()
			to.end(err)
			return
		}
		// Descriptors come back when connections close.
		timer := time.NewTimer(wait)
		select {
		case <-quit:
		case <-timer.C:
		}
		timer.Stop()
		wait = min(2*wait, last)
	}
}

// fewest is the loop with the fewest connections.
func (l *Loops) fewest() *stdLoop {
	var best *stdLoop
	least := 0
	for _, loop := range l.loops {
		loop := loop.(*stdLoop)
		loop.mu.Lock()
		count := len(loop.connections)
		loop.mu.Unlock()
		if best == nil || count < least {
			best, least = loop, count
		}
	}
	return best
}

// adopt makes an accepted connection one of the loop's.
func (l *stdLoop) adopt(connection net.Conn, to *listening) {
	to.config.setNoDelay(connection)
	c := &Conn{home: l, local: connection.LocalAddr(), remote: connection.RemoteAddr()}
	s := &stdConn{
		loop: l, conn: c, net: connection,
		resumed: make(chan struct{}, 1), closing: make(chan struct{}), dead: make(chan struct{}),
	}
	l.mu.Lock()
	if l.ended || len(l.connections) >= l.group.config.connections {
		l.mu.Unlock()
		s.reset()
		return
	}
	l.accepted++
	l.connections[c] = s
	l.mu.Unlock()
	c.sink = to.accept(c)
	go s.read()
}

// writerRequests are those that a connection's writing goroutine follows.
const writerRequests = requestFlush | requestShutdown | requestClose

// stdConn is a connection of package net under a Conn.
type stdConn struct {
	loop    *stdLoop
	conn    *Conn
	net     net.Conn
	resumed chan struct{} // told when receiving goes on
	closing chan struct{} // closed when this end's direction has ended and Close was called
	dead    chan struct{} // closed when it is aborted, or has failed
	dying   sync.Once
	buried  bool // its end is reported; of the goroutine that reads
	ending  sync.Once

	// Under the connection's lock.
	writing bool // a goroutine writes
	timer   *time.Timer
	ours    bool // this end's direction has ended
	theirs  bool // the peer's has
}

// report calls the sink, as on a loop.
func (s *stdConn) report(f func(to sink)) {
	returned := false
	defer s.loop.exited(s.conn, &returned)
	s.reportInTurn(f)
	returned = true
}

func (s *stdConn) reportInTurn(f func(to sink)) {
	s.loop.turn.Lock()
	to := s.conn.sink
	if !runsHandler(to) {
		// It locks for itself, and those that it serves may wait.
		s.loop.turn.Unlock()
		f(to)
		return
	}
	defer s.loop.turn.Unlock()
	f(to)
}

// serve does what does not wait, and leaves the rest to a goroutine.
func (s *stdConn) serve() {
	c := s.conn
	c.mu.Lock()
	requests := c.requests
	c.requests &= writerRequests
	c.listed = false
	if requests&requestDeadline != 0 {
		s.setTimer(c.deadline)
	}
	if requests&requestPause != 0 && !c.pause {
		select {
		case s.resumed <- struct{}{}:
		default:
		}
	}
	if requests&requestClose != 0 {
		// For what is queued; end limits the wait for the peer's end.
		_ = s.net.SetWriteDeadline(c.closeBy)
	}
	start := c.requests != 0 && !s.writing && requests&requestAbort == 0
	if start {
		s.writing = true
	}
	c.mu.Unlock()
	if requests&requestAbort != 0 {
		s.reset()
	}
	if start {
		go s.write()
	}
	if requests&requestKeepRest != 0 {
		s.loop.post(c.settle)
	}
}

// setTimer moves the deadline. The lock is held.
func (s *stdConn) setTimer(deadline time.Time) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if deadline.IsZero() || s.conn.gone {
		return
	}
	s.timer = time.AfterFunc(time.Until(deadline), func() {
		s.report(func(to sink) { s.tellDeadline(to, deadline) })
	})
}

// tellDeadline tells that a deadline has passed, unless it was moved, or the connection closed, while others had their turn.
func (s *stdConn) tellDeadline(to sink, deadline time.Time) {
	s.conn.mu.Lock()
	due := s.conn.deadline.Equal(deadline) && s.conn.state < stateClosing
	s.conn.mu.Unlock()
	if due {
		to.deadline(s.conn)
	}
}

// reset closes now, with a reset for the peer.
func (s *stdConn) reset() {
	s.dying.Do(func() {
		if tcp, isTCP := s.net.(*net.TCPConn); isTCP {
			_ = tcp.SetLinger(0) // fails only where there is nothing left to reset
		}
		_ = s.net.Close()
		close(s.dead)
	})
}

// write sends what is queued, and then ends the direction if that was asked for.
func (s *stdConn) write() {
	returned := false
	defer func() {
		if !returned {
			go s.write() // the rest: a handler has called runtime.Goexit
		}
	}()
	c := s.conn
	for {
		c.mu.Lock()
		bytes := c.out.next(64 << 10)
		if bytes == nil {
			// Others may have been added just now, for a serve that is on its way.
			requests := c.requests & writerRequests
			c.requests &^= writerRequests
			if requests&^requestFlush == 0 {
				s.writing = false
				c.mu.Unlock()
				returned = true
				return
			}
			c.mu.Unlock()
			s.end(requests&requestClose != 0)
			continue
		}
		c.mu.Unlock()
		err := s.writeAll(bytes)
		c.mu.Lock()
		c.out.taken(s.loop.pool)
		if err != nil && c.state != stateClosed {
			c.state = stateClosed
			if c.cause == nil {
				c.cause = failure(err)
			}
		}
		if c.state == stateClosed {
			c.out.drop(s.loop.pool)
		}
		room := c.out.refused && c.state == stateOpen && c.out.queued() <= s.loop.group.config.lowWater
		c.mu.Unlock()
		if err != nil {
			s.reset()
		}
		if room {
			s.report(s.tellRoom)
		}
	}
}

// writeAll writes for as long as the peer takes something: once this end has closed, the limit counts from what it took last.
func (s *stdConn) writeAll(bytes []byte) error {
	for {
		n, err := s.net.Write(bytes)
		late := errors.Is(err, os.ErrDeadlineExceeded)
		s.conn.mu.Lock()
		if n > 0 && s.conn.state == stateClosing {
			s.conn.closeBy = time.Now().Add(s.loop.group.config.closeLimit)
			_ = s.net.SetWriteDeadline(s.conn.closeBy)
		}
		s.conn.mu.Unlock()
		if !late || n == 0 {
			return err
		}
		bytes = bytes[n:]
	}
}

// tellRoom tells who waits for room, once, and not when it was closed while others had their turn.
func (s *stdConn) tellRoom(to sink) {
	s.conn.mu.Lock()
	waits := s.conn.out.refused && s.conn.state == stateOpen
	s.conn.out.refused = false
	s.conn.mu.Unlock()
	if waits {
		to.writable(s.conn)
	}
}

// end ends this end's direction, and for a close has the reader wait for the peer's.
func (s *stdConn) end(closes bool) {
	if half, can := s.net.(interface{ CloseWrite() error }); can {
		_ = half.CloseWrite() // fails if the peer has gone, which the reader sees
	}
	s.conn.mu.Lock()
	s.ours = true
	both := s.theirs
	s.conn.mu.Unlock()
	if closes {
		_ = s.net.SetReadDeadline(time.Now().Add(s.loop.group.config.closeLimit))
	}
	if closes || both {
		s.ending.Do(func() { close(s.closing) })
	}
}

// read is the connection's goroutine.
func (s *stdConn) read() {
	returned := false
	defer func() {
		if !returned {
			go s.readOn()
		}
	}()
	s.report(func(to sink) { to.opened(s.conn) })
	returned = true
	s.readOn()
}

// readOn reports what arrives, and the end. A handler that calls runtime.Goexit ends the goroutine, and another goes on.
func (s *stdConn) readOn() {
	returned := false
	defer func() {
		if !returned && !s.buried {
			go s.readOn()
		}
	}()
	c := s.conn
	err := s.receive()
	if err == io.EOF {
		err = nil
		c.mu.Lock()
		s.theirs = true
		if s.ours {
			s.ending.Do(func() { close(s.closing) })
		}
		c.mu.Unlock()
		s.report(func(to sink) {
			if !c.IsClosed() {
				to.ended(c)
			}
		})
		select {
		case <-s.closing:
		case <-s.dead:
		}
	}
	s.buried = true
	s.bury(err)
	returned = true
}

// bury reports the end of the connection.
func (s *stdConn) bury(err error) {
	c := s.conn
	s.dying.Do(func() { _ = s.net.Close(); close(s.dead) })
	defer func() {
		s.loop.mu.Lock()
		delete(s.loop.connections, c)
		s.loop.idle.Broadcast()
		s.loop.mu.Unlock()
	}()
	c.mu.Lock()
	c.state, c.gone = stateClosed, true
	s.setTimer(time.Time{})
	c.out.drop(s.loop.pool)
	if c.cause != nil {
		err = c.cause
	} else if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	c.mu.Unlock()
	s.report(func(to sink) { to.closed(c, failure(err)) })
}

// receive reports what arrives until there is no more, and returns why.
func (s *stdConn) receive() error {
	c := s.conn
	buffer := make([]byte, min(s.loop.group.config.receiveSlotSize, 16<<10))
	for {
		c.mu.Lock()
		wait := c.pause && c.state < stateClosing
		c.mu.Unlock()
		if wait {
			select {
			case <-s.resumed:
			case <-s.closing:
			case <-s.dead:
			}
			continue
		}
		n, err := s.net.Read(buffer)
		if n > 0 && !c.IsClosed() {
			s.report(func(to sink) { to.data(c, buffer[:n]) })
		}
		if err != nil {
			return err
		}
	}
}

// failure makes an error of package net the one that a loop of libquoit would report.
func failure(err error) error {
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTimeout
	case errors.As(err, &errno):
		if errno == syscall.EPIPE {
			return errReset
		}
		return errno
	}
	return err
}

// onSocket implements home.
func (l *stdLoop) onSocket(c *Conn, f func(socket streamSocket) error) error {
	l.mu.Lock()
	s := l.connections[c]
	l.mu.Unlock()
	if s == nil {
		return errClosed
	}
	return f(stdSocketOptions{stdPacketOptions{s.net}})
}

// stdSocketOptions are those of a connection of package net.
type stdSocketOptions struct{ stdPacketOptions }

func (o stdSocketOptions) File(string) (*os.File, error) {
	if has, can := o.connection.(interface{ File() (*os.File, error) }); can {
		return has.File()
	}
	return nil, errors.ErrUnsupported
}

func (o stdSocketOptions) SetNoDelay(noDelay bool) error {
	if tcp, isTCP := o.connection.(*net.TCPConn); isTCP {
		return tcp.SetNoDelay(noDelay)
	}
	return syscall.ENOPROTOOPT
}

func (o stdSocketOptions) SetKeepAlivePeriod(period time.Duration) error {
	if tcp, isTCP := o.connection.(*net.TCPConn); isTCP {
		return tcp.SetKeepAlivePeriod(period)
	}
	return syscall.ENOPROTOOPT
}

func (o stdSocketOptions) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	if tcp, isTCP := o.connection.(*net.TCPConn); isTCP {
		return tcp.SetKeepAliveConfig(config)
	}
	return syscall.ENOPROTOOPT
}
