package quoit

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
)

// Connections that wait for Accept, from which on the loops accept no more, and down to which they go on: who connects
// meanwhile waits in the kernel's backlog, as with package net. Those that the kernel has accepted before it hears of it
// come on top.
const (
	mostQueued  = 256
	leastQueued = mostQueued / 2
)

// Listener is a net.Listener on loops. Its methods may be called from any goroutine.
type Listener struct {
	loops     *Loops
	ownsLoops bool
	listening *listening
	std       net.Listener // instead, on EngineStd and for unixpacket
	config    *config

	mu       sync.Mutex
	queue    []*netConn // accepted by the loops
	held     bool       // they accept no more, as it is long
	lacks    error      // why they could not accept, of which Accept has not told; with an empty queue
	open     map[*netConn]struct{}
	closed   bool
	stopping bool          // by StopAccepting
	ready    chan struct{} // room for one: look at the queue

	ending sync.Once
	gone   chan struct{} // closed when all connections have gone after Close, and its own loops have ended
}

// Listen listens on an address of network tcp, tcp4, tcp6, unix or unixpacket, as net.Listen does. Its connections are *NetConn;
// on EngineStd, and for unixpacket, which the library does not have, those of package net. Options make its loops (one by
// default: connections are served by goroutines), which last until the listener and all its connections are closed.
func Listen(network, address string, options ...Option) (*Listener, error) {
	return listen(network, address, append([]Option{WithLoops(1)}, options...))
}

func listen(network, address string, options []Option) (*Listener, error) {
	config, err := newPlainConfig(options)
	if err != nil {
		return nil, err
	}
	loops, owns, err := config.group()
	if err != nil {
		return nil, err
	}
	l := &Listener{
		loops: loops, ownsLoops: owns, config: config, open: make(map[*netConn]struct{}), ready: make(chan struct{}, 1),
		gone: make(chan struct{}),
	}
	if err := l.listen(network, address, config); err != nil {
		if owns {
			_ = loops.Close() // fails only if it was called before
		}
		return nil, err
	}
	return l, nil
}

// FileListener listens on a socket that listens already, such as one that was inherited, as net.FileListener does: it takes a
// copy, and closing one does not affect the other. A socket that another process has as well is accepted from by both.
func FileListener(file *os.File, options ...Option) (*Listener, error) {
	// Whether each loop can have a socket of its own was decided when this one was made.
	return listen("tcp", "", append([]Option{WithLoops(1)}, append(options, func(c *config) {
		c.file, c.reusePort = file, false
	})...))
}

func (l *Listener) listen(network, address string, config *config) (err error) {
	if config.file != nil && l.loops.engine == EngineStd {
		l.std, err = net.FileListener(config.file)
		return err
	}
	if l.loops.engine == EngineStd || network == "unixpacket" {
		l.std, err = config.listenStd(network, address)
		return err
	}
	if network == "unix" && address == "" && config.file == nil {
		given, err := unnamedUnix()
		if err != nil {
			return err
		}
		defer given.Close()
		config.file, config.reusePort = given, false
	}
	var bound string
	if config.file == nil {
		bound, err = bindAddress(network, address)
	}
	if err != nil {
		return listenError(network, "", err)
	}
	config.ipv6Only = network == "tcp6"
	listening, err := l.loops.listen(bound, config, l.accept, l.failed)
	if err != nil && config.file != nil {
		return &net.OpError{Op: "file", Net: "file+net", Source: fileAddr(config.file.Name()), Err: err}
	}
	if err != nil {
		return listenError(network, bound, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listening = listening
	l.holdIfLong() // it accepts already
	return nil
}

// unnamedUnix is a Unix socket that listens at a name which the kernel has chosen. The library listens at names that it is told.
func unnamedUnix() (*os.File, error) {
	listener, err := net.Listen("unix", "")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return listener.(*net.UnixListener).File()
}

// accept takes a connection from a loop.
func (l *Listener) accept(c *Conn) sink {
	n := newNetConn(c)
	l.mu.Lock()
	l.open[n] = struct{}{}
	closed := l.closed
	if !closed {
		l.queue = append(l.queue, n)
		l.lacks = nil
		l.holdIfLong()
	}
	l.mu.Unlock()
	if closed {
		// It was on its way when the listener stopped, and nobody takes it any more.
		_ = n.Abort() // or it has ended by itself
	}
	signal(l.ready)
	c.home.wokeSomebody()
	return listenerSink{netSink{n}, l}
}

// failed notes that a loop could not accept, mostly for want of descriptors: Accept tells of it, as package net's does. The loop
// tries again by itself.
func (l *Listener) failed(err error) {
	l.mu.Lock()
	if len(l.queue) == 0 {
		l.lacks = err
	}
	l.mu.Unlock()
	signal(l.ready)
}

// holdIfLong has the loops accept no more if the queue is long. The lock is held.
func (l *Listener) holdIfLong() {
	if len(l.queue) >= mostQueued && !l.held && l.listening != nil {
		l.hold(true)
	}
}

// hold has the loops accept no more, or go on. The lock is held, so that they hear of both in this order.
func (l *Listener) hold(on bool) {
	l.held = on
	l.listening.hold(on)
}

// listenerSink is a netSink whose listener is told of the end.
type listenerSink struct {
	netSink
	listener *Listener
}

func (s listenerSink) closed(c *Conn, err error) {
	s.netSink.closed(c, err)
	s.listener.remove(s.n)
}

func (l *Listener) remove(n *netConn) {
	l.mu.Lock()
	delete(l.open, n)
	last := l.closed && len(l.open) == 0
	l.mu.Unlock()
	if last {
		l.end()
	}
}

// end ends the listener's own loops when nothing of it is left, from wherever it is called.
func (l *Listener) end() {
	l.ending.Do(func() {
		if !l.ownsLoops {
			close(l.gone)
			return
		}
		go func() {
			_ = l.loops.Close() // fails only if it was called before
			close(l.gone)
		}()
	})
}

// Accept implements net.Listener. While there are no descriptors for who connects, it returns the temporary error of package
// net's; the loops try again by themselves.
func (l *Listener) Accept() (net.Conn, error) {
	if l.std != nil {
		return l.acceptStd()
	}
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			signal(l.ready) // for the next who waits
			return nil, l.opError("accept", errClosed)
		}
		if len(l.queue) > 0 {
			n := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			more := len(l.queue) > 0
			if l.held && len(l.queue) <= leastQueued {
				l.hold(false)
			}
			l.mu.Unlock()
			if more {
				signal(l.ready)
			}
			return n.handle(), nil
		}
		lacks := l.lacks
		l.lacks = nil
		l.mu.Unlock()
		if lacks != nil {
			return nil, l.opError("accept", os.NewSyscallError("accept4", lacks))
		}
		select {
		case <-l.ready:
		case <-l.listening.stopped:
			l.mu.Lock()
			closed := l.closed
			stopping := l.stopping && !closed
			l.mu.Unlock()
			if stopping {
				select {
				case <-l.ready:
					continue
				case <-l.listening.settled:
				}
				l.mu.Lock()
				left := len(l.queue) > 0 || l.closed
				l.mu.Unlock()
				if left {
					continue
				}
			}
			if !closed && l.listening.failure != nil {
				return nil, l.opError("accept", l.listening.failure)
			}
			return nil, l.opError("accept", errClosed)
		}
	}
}

// acceptStd is Accept of package net's listener. Of one that was inherited only its connections can be told of WithKeepAlive.
func (l *Listener) acceptStd() (net.Conn, error) {
	connection, err := l.std.Accept()
	if err != nil {
		return nil, err
	}
	l.config.setNoDelay(connection)
	if tcp, is := connection.(*net.TCPConn); is && l.config.file != nil {
		_ = tcp.SetKeepAliveConfig(l.config.keepAliveConfig()) // a connection that has gone already tells when it is read
	}
	return connection, nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr {
	if l.std != nil {
		return l.std.Addr()
	}
	return l.listening.local
}

// Loops are the loops that it runs on.
func (l *Listener) Loops() *Loops { return l.loops }

// StopAccepting accepts nothing more, and aborts nothing: Accept returns the connections that the loops have accepted already,
// and then net.ErrClosed. So a server over the listener serves all of them, which [Listener.Close] would not have it do. It is the
// first step of a process that another one takes over from, with the same socket: call Close or Shutdown in the end.
func (l *Listener) StopAccepting() {
	if l.std != nil {
		_ = l.std.Close() // what it returns changes nothing
		return
	}
	l.mu.Lock()
	if l.closed || l.stopping {
		l.mu.Unlock()
		return
	}
	l.stopping = true
	l.mu.Unlock()
	l.listening.stop()
}

// Close implements net.Listener: it stops accepting and aborts what was not fetched by Accept. Connections that were
// stay open. It returns when the address is free (on the thread of one of its loops, before).
func (l *Listener) Close() error {
	if l.std != nil {
		err := l.std.Close()
		// After StopAccepting there are loops of it to be closed all the same.
		if l.ownsLoops {
			_ = l.loops.Close() // fails only if it was called before
		}
		return err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.opError("close", errClosed)
	}
	l.closed = true
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	signal(l.ready)
	for _, n := range queue {
		_ = n.Abort() // or it has ended by itself
	}
	l.listening.stop()
	if l.loops.here() {
		go l.stopped() // only this thread could end the wait
	} else {
		l.stopped()
	}
	return nil
}

// stopped waits until nothing more is accepted, and ends the loops if nothing else uses them.
func (l *Listener) stopped() {
	<-l.listening.stopped
	l.mu.Lock()
	none := len(l.open) == 0
	l.mu.Unlock()
	if none {
		l.end()
	}
}

// Shutdown closes the listener, unless it is closed, and waits until all of its connections have been closed and what was
// written to them has left: Close of a connection does not wait, and what is queued ends with the process. When the context
// ends first it aborts what is left, and returns the context's error. Call it after Shutdown of the server that uses the
// listener, which closes the connections. It does not wait for package net's connections: the kernel keeps what
// was written to them. It must not be called in a callback.
func (l *Listener) Shutdown(ctx context.Context) error {
	if err := l.Close(); err != nil && !errors.Is(err, errClosed) {
		return err
	}
	if l.std != nil {
		return nil
	}
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	left := make([]*netConn, 0, len(l.open))
	for n := range l.open {
		left = append(left, n)
	}
	l.mu.Unlock()
	for _, n := range left {
		_ = n.Abort() // or it has ended by itself
	}
	<-l.gone
	return ctx.Err()
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: networkOf(l.Addr()), Addr: l.Addr(), Err: err}
}

// fileAddr is the name of a file that is no socket, as package net has it.
type fileAddr string

func (fileAddr) Network() string  { return "file+net" }
func (f fileAddr) String() string { return string(f) }
