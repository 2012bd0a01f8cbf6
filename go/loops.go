package quoit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Loops is a group of event loops, on which servers, listeners and dialers run. Serve, Start, Listen and NewDialer
// make their own unless OnLoops names one to share. Its methods may be called from any goroutine.
type Loops struct {
	config *config
	engine Engine
	reason string
	loops  []backend
	next   int // the loop that dials next

	mu      sync.Mutex
	accepts map[uint64]*listening
	ended   bool
	failure error
	failed  chan struct{} // closed at the first failure of a loop
}

// backend is one loop of a group.
type backend interface {
	home
	// listen begins to accept, for all loops of the group; called on the first.
	listen(to *listening) error
	// openDatagram opens a datagram socket, and sets what of it only the loop knows.
	openDatagram(socket *DatagramSocket, address string, config *config, reusePort bool, to datagramSink) error
	// every calls f on the loop now and after each time that it returns, until that is 0 or less.
	every(f func() time.Duration)
	// each calls f on the loop with every connection.
	each(f func(c *Conn))
	// counters are nil once it has ended.
	counters() Counters
	// inProcess is its number among the loops of its kind in the process.
	inProcess() int
	// end closes what is left and waits until the loop is gone.
	end()
}

// listening is an address that is listened on.
type listening struct {
	address string
	loop    int // that accepts
	config  *config
	accept  func(c *Conn) sink // on the connection's loop
	failed  func(err error)    // accepting has failed for now, and is tried again; or nil. On the loop that accepts
	local   net.Addr
	hold    func(on bool) // accepts nothing more for now, or goes on
	stop    func()        // stops accepting; once
	stopped chan struct{} // closed when nothing more is accepted
	settled chan struct{} // closed when all that were accepted have been reported, by whichever loop. Of the library's loops
	once    sync.Once
	failure error // why it stopped by itself; before stopped is closed
}

func (l *listening) end(failure error) {
	l.once.Do(func() {
		l.failure = failure
		close(l.stopped)
	})
}

// NewLoops makes loops. Close them when nothing runs on them any more.
func NewLoops(options ...Option) (*Loops, error) {
	config, err := newPlainConfig(options)
	if err != nil {
		return nil, err
	}
	return newLoops(config)
}

func newLoops(config *config) (*Loops, error) {
	l := &Loops{config: config, accepts: make(map[uint64]*listening), failed: make(chan struct{})}
	if config.engine == EngineStd {
		l.useStd("as configured")
		return l, nil
	}
	err := l.useLibrary()
	if err == nil {
		config.logger.Info("quoit: loops are running", "engine", l.engine.String(), "loops", len(l.loops), "reason", l.reason)
		return l, nil
	}
	var unusable *libraryError
	if config.engine != EngineAuto || !errors.As(err, &unusable) {
		return nil, fmt.Errorf("quoit: %w", err)
	}
	l.useStd(err.Error())
	config.logger.Warn("quoit: running on package net, without libquoit", "reason", l.reason)
	return l, nil
}

// libraryError says why libquoit cannot be used.
type libraryError struct{ reason error }

func (e *libraryError) Error() string { return e.reason.Error() }

func (e *libraryError) Unwrap() error { return e.reason }

func (l *Loops) useStd(reason string) {
	l.engine, l.reason = EngineStd, reason
	for index := range l.config.loops {
		l.loops = append(l.loops, newStdLoop(l, index))
	}
}

// Engine is the engine that runs; never EngineAuto.
func (l *Loops) Engine() Engine { return l.engine }

// EngineReason says in one line why that engine runs, and what the others lack.
func (l *Loops) EngineReason() string { return l.reason }

// Len is the number of loops.
func (l *Loops) Len() int { return len(l.loops) }

// here is whether the calling thread is one of theirs.
func (l *Loops) here() bool {
	for _, loop := range l.loops {
		if loop.here() {
			return true
		}
	}
	return false
}

// Close aborts all connections that are left, ends the loops and waits for them. Shut servers down and close listeners
// first. It must not be called in a callback.
func (l *Loops) Close() error {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return ErrShutdown
	}
	l.ended = true
	var stopped []*listening
	for _, listening := range l.accepts {
		stopped = append(stopped, listening)
	}
	l.mu.Unlock()
	for _, listening := range stopped {
		listening.stop()
		<-listening.stopped
	}
	for _, loop := range l.loops {
		loop.end()
	}
	return nil
}

// fail notes that a loop has failed for good.
func (l *Loops) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
		close(l.failed)
	}
}

// listen begins to accept on an address of ParseAddress's form.
func (l *Loops) listen(address string, config *config, accept func(c *Conn) sink, failed func(err error)) (*listening, error) {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return nil, ErrShutdown
	}
	to := &listening{address: address, config: config, accept: accept, failed: failed, stopped: make(chan struct{}), settled: make(chan struct{})}
	if err := l.loops[0].listen(to); err != nil {
		return nil, err
	}
	return to, nil
}

// acceptor is who accepts for a listener.
func (l *Loops) acceptor(id uint64) *listening {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepts[id]
}

func (l *Loops) setAcceptor(id uint64, to *listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to == nil {
		delete(l.accepts, id)
	} else {
		l.accepts[id] = to
	}
}

// pick returns the loop for the next connection that is dialled.
func (l *Loops) pick() (backend, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, ErrShutdown
	}
	l.next++
	return l.loops[l.next%len(l.loops)], nil
}

// bindAddress makes of an address as package net takes it one that the library takes: numbers, or unix:PATH.
func bindAddress(network, address string) (string, error) {
	switch network {
	case "unix", "unixgram":
		return "unix:" + address, nil
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
	default:
		return "", net.UnknownNetworkError(network)
	}
	if address == "" {
		address = ":0" // as package net has it
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	number, err := net.LookupPort(network, port)
	if err != nil {
		return "", err
	}
	ipVersion := network[len("tcp"):]
	literal, _ := netip.ParseAddr(host)
	switch all := host == "" || literal.IsUnspecified(); {
	case all && (ipVersion == "4" || ipVersion == "" && !hasIPv6()):
		host = "0.0.0.0"
	case all && (ipVersion == "" || !literal.Is4()):
		host = "::" // for both families, unless the network is of one
	default:
		resolved, err := resolve(context.Background(), network, host)
		if err != nil {
			return "", err
		}
		host = resolved[0]
	}
	return net.JoinHostPort(host, fmt.Sprint(number)), nil
}

// listenError is why bound, which bindAddress has made, cannot be listened on; of an address that has no such form, it is empty.
func listenError(network, bound string, err error) error {
	if number := syscall.Errno(0); bound != "" && errors.As(err, &number) {
		// With the library's text, which says what to do.
		call := "bind"
		if number == syscall.EMFILE || number == syscall.ENFILE {
			call = "socket"
		}
		err = os.NewSyscallError(call, err)
	}
	failed := &net.OpError{Op: "listen", Net: network, Err: err}
	if path, isUnix := strings.CutPrefix(bound, "unix:"); isUnix {
		failed.Addr = &net.UnixAddr{Name: path, Net: network}
	} else if address, notOne := netip.ParseAddrPort(bound); notOne == nil {
		if strings.HasPrefix(network, "udp") {
			failed.Addr = net.UDPAddrFromAddrPort(address)
		} else {
			failed.Addr = net.TCPAddrFromAddrPort(address)
		}
	}
	return failed
}

// hasIPv6 says whether this machine has the family at all.
var hasIPv6 = sync.OnceValue(func() bool {
	listener, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	listener.Close()
	return true
})

// lookUp returns the addresses of a host that the network, of TCP or UDP, can use, in the resolver's order.
func lookUp(ctx context.Context, network, host string) ([]string, error) {
	// The resolver leaves out the zone of a literal address.
	if literal, err := netip.ParseAddr(host); err == nil && literal.Zone() != "" && !strings.HasSuffix(network, "4") {
		return []string{host}, nil
	}
	kind := "ip" + network[len("tcp"):]
	found, err := net.DefaultResolver.LookupNetIP(ctx, kind, host)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(found))
	for index, address := range found {
		all[index] = address.Unmap().String()
	}
	if len(all) == 0 {
		return nil, &net.AddrError{Err: "no suitable address found", Addr: host}
	}
	return all, nil
}

// resolve is lookUp for what is listened on: those of version 4 come first, as with package net.
func resolve(ctx context.Context, network, host string) ([]string, error) {
	all, err := lookUp(ctx, network, host)
	version := func(address string) int {
		if strings.Contains(address, ":") {
			return 6
		}
		return 4
	}
	slices.SortStableFunc(all, func(one, other string) int { return version(one) - version(other) })
	return all, err
}

// splitServeAddress takes apart the address of Serve and Start: host:port, or unix:PATH.
func splitServeAddress(address string) (network, rest string) {
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		return "unix", path
	}
	return "tcp", address
}
