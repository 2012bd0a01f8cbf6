package quoit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dialer makes connections on loops. Its DialContext fits http.Transport and the like. Its methods may be called from
// any goroutine, but not in callbacks.
type Dialer struct {
	loops     *Loops
	ownsLoops bool
	config    *config
	std       *net.Dialer // for the networks that loops do not have; on EngineStd for all
}

// NewDialer makes a dialer. Options make its loops, one by default, which last until Close.
func NewDialer(options ...Option) (*Dialer, error) {
	config, err := newPlainConfig(append([]Option{WithLoops(1)}, options...))
	if err != nil {
		return nil, err
	}
	loops, owns, err := config.group()
	if err != nil {
		return nil, err
	}
	config.broadcast = true // as of every socket of package net
	std := &net.Dialer{KeepAlive: -1, KeepAliveConfig: config.keepAliveConfig()}
	return &Dialer{loops: loops, ownsLoops: owns, config: config, std: std}, nil
}

// Loops are the loops that it runs on.
func (d *Dialer) Loops() *Loops { return d.loops }

// Close ends the dialer's own loops, and aborts what is left of its connections.
func (d *Dialer) Close() error {
	if d.ownsLoops {
		return d.loops.Close()
	}
	return nil
}

// Dial is DialContext without a limit but the library's, of 30 s an attempt.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address of network tcp, tcp4, tcp6, udp, udp4, udp6 or unix, as net.Dialer's does. Of a host with
// several addresses it tries one after the other, in the resolver's order, each in its part of the time that the context leaves.
// Those of the other family than the first one's are tried beside them when nobody has answered in 300 ms ("Happy Eyeballs",
// RFC 6555), and the first connection is the one. The context limits connecting only. for the networks of UDP it returns a
// *DatagramConn, or on EngineStd what package net has, and the first address will do: nobody is asked. Connections of all other
// networks are package net's own on every engine: unixgram, whose Write waits until the receiver has room, for which a loop would
// have to stop; unixpacket, which the library does not have; and those of IP.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	onLoops := slices.Contains([]string{"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix"}, network)
	if d.loops.engine == EngineStd || !onLoops {
		conn, err := d.std.DialContext(ctx, network, address)
		if err == nil {
			d.config.setNoDelay(conn)
		}
		return conn, err
	}
	targets, err := dialTargets(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	first, others := targets, []string(nil)
	if network == "tcp" {
		first, others = byFamily(targets)
	}
	return d.dialBeside(ctx, network, first, others)
}

// byFamily divides targets into those of the first one's family, and the others.
func byFamily(targets []string) (first, others []string) {
	isSix := func(target string) bool { return strings.HasPrefix(target, "[") }
	for _, target := range targets {
		if isSix(target) == isSix(targets[0]) {
			first = append(first, target)
		} else {
			others = append(others, target)
		}
	}
	return first, others
}

// fallbackDelay is how long the first family has alone, as with package net.
const fallbackDelay = 300 * time.Millisecond

// dialBeside tries the first ones, and the others too when those fail or take long.
func (d *Dialer) dialBeside(ctx context.Context, network string, first, others []string) (net.Conn, error) {
	if len(others) == 0 {
		return d.dialInTurn(ctx, network, first)
	}
	type outcome struct {
		conn  net.Conn
		err   error
		first bool
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome)
	over := make(chan struct{})
	defer close(over)
	try := func(targets []string, isFirst bool) {
		conn, err := d.dialInTurn(within, network, targets)
		select {
		case outcomes <- outcome{conn, err, isFirst}:
		case <-over:
			if err == nil {
				_ = conn.Close() // the other one was before
			}
		}
	}
	go try(first, true)
	delay := time.NewTimer(fallbackDelay)
	defer delay.Stop()
	running, begun := 1, false
	var failure error
	for {
		select {
		case <-delay.C:
			if !begun {
				begun = true
				running++
				go try(others, false)
			}
		case end := <-outcomes:
			if end.err == nil {
				return end.conn, nil
			}
			running--
			if end.first || failure == nil {
				failure = end.err // of the first family, if both fail
			}
			if !begun {
				delay.Reset(0)
			} else if running == 0 {
				return nil, failure
			}
		}
	}
}

// leastPart is the least time for one of several addresses, as with package net.
const leastPart = 2 * time.Second

// dialInTurn tries one target after the other, and returns the first error if all fail.
func (d *Dialer) dialInTurn(ctx context.Context, network string, targets []string) (net.Conn, error) {
	var failure error
	for index, target := range targets {
		within, cancel := ctx, context.CancelFunc(func() {})
		if deadline, limited := ctx.Deadline(); limited {
			left := time.Until(deadline)
			part := left / time.Duration(len(targets)-index)
			within, cancel = context.WithTimeout(ctx, min(left, max(part, leastPart)))
		}
		conn, err := d.dialAny(within, network, target)
		cancel()
		if err == nil {
			return conn, nil
		}
		if failure == nil {
			failure = &net.OpError{Op: "dial", Net: network, Addr: addressOf(network, target), Err: asCall("connect", err)}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failure
}

// addressOf is a target as package net has it.
func addressOf(network, target string) net.Addr {
	address, err := netip.ParseAddrPort(target)
	switch {
	case network == "unix":
		return &net.UnixAddr{Name: target, Net: network}
	case err != nil:
		return nil
	case strings.HasPrefix(network, "udp"):
		return net.UDPAddrFromAddrPort(address)
	}
	return net.TCPAddrFromAddrPort(address)
}

func dialTargets(ctx context.Context, network, address string) ([]string, error) {
	if network == "unix" {
		if address == "" {
			return nil, errors.New("quoit: there is no path to dial")
		}
		return []string{address}, nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		// This host, and nobody need be asked where that is.
		host = "127.0.0.1"
		if strings.HasSuffix(network, "6") {
			host = "::1"
		}
	}
	hosts, err := lookUp(ctx, network, host)
	if err != nil {
		return nil, err
	}
	for index, host := range hosts {
		hosts[index] = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return hosts, nil
}

func (d *Dialer) dialAny(ctx context.Context, network, target string) (net.Conn, error) {
	if strings.HasPrefix(network, "udp") {
		return d.dialDatagrams(ctx, network, target)
	}
	// Without a connection the interface is nil, too.
	n, err := d.dial(ctx, network, target)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// dialling is one attempt.
type dialling interface {
	dial(c *Conn, network, address string, config *config) error
}

func (d *Dialer) dial(ctx context.Context, network, target string) (*NetConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	loop, err := d.loops.pick()
	if err != nil {
		return nil, err
	}
	if loop.here() {
		return nil, ErrOnLoop
	}
	c := &Conn{home: loop}
	n := newNetConn(c)
	sink := &dialSink{netSink: netSink{n}, done: make(chan error, 1)}
	c.sink = sink
	on, can := loop.(dialling)
	if !can {
		return nil, fmt.Errorf("quoit: engine %v does not dial on its loops", d.loops.engine)
	}
	if err := on.dial(c, network, target, d.config); err != nil {
		return nil, err
	}
	select {
	case err := <-sink.done:
		if err != nil {
			return nil, err
		}
		if isItself(n) {
			_ = n.Abort() // or it has ended
			return nil, errRefused
		}
		return n.handle(), nil
	case <-ctx.Done():
		_ = c.Abort() // or it has come to an end meanwhile
		return nil, ctx.Err()
	}
}

// isItself is whether a connection was given the port that it connects to, and so has reached itself: a port of which that can be
// so is nobody's, so that the next attempt would be refused. Package net makes that one.
func isItself(n *netConn) bool {
	local, isTCP := n.conn.local.(*net.TCPAddr)
	if !isTCP {
		return false
	}
	remote, isTCP := n.conn.remote.(*net.TCPAddr)
	return isTCP && local.Port != 0 && local.Port == remote.Port && local.IP.Equal(remote.IP)
}

// dialSink is a netSink that also reports how the attempt went.
type dialSink struct {
	netSink
	done    chan error
	reached bool
}

func (s *dialSink) opened(c *Conn) {
	s.reached = true
	s.done <- nil
	c.home.wokeSomebody()
}

func (s *dialSink) closed(c *Conn, err error) {
	if !s.reached {
		if err == nil {
			err = errClosed
		}
		s.done <- err
		c.home.wokeSomebody()
	}
	s.netSink.closed(c, err)
}
