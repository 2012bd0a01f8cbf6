package quoit

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quoit-io/quoit/go/internal/proxyheader"
)

// ProxyHeader is what a balancer has said of a connection (WithProxyProtocol). Do not change it.
type ProxyHeader struct {
	// Version is 1 or 2.
	Version int
	// Source is the client's address, and Destination the one that it has connected to: what RemoteAddr and LocalAddr return.
	// They are nil where the connection's own addresses hold: the balancer speaks for itself, as in a check (LOCAL), or does not
	// know the client's (UNKNOWN, UNSPEC).
	Source, Destination net.Addr
	// Peer and Local are the connection's own addresses: Peer is the balancer's.
	Peer, Local net.Addr
	// Values are those of version 2 beside the addresses, in their order.
	Values []ProxyValue
}

// ProxyValue is a value of a ProxyHeader: its type (PP2_TYPE_... of the protocol's text), and its bytes.
type ProxyValue struct {
	Type  byte
	Value []byte
}

// Value returns the first value of a type.
func (h *ProxyHeader) Value(of byte) ([]byte, bool) {
	index := slices.IndexFunc(h.Values, func(value ProxyValue) bool { return value.Type == of })
	if index < 0 {
		return nil, false
	}
	return h.Values[index].Value, true
}

// WithProxyProtocol has every connection that Serve or Start accepts begin with a header of the PROXY protocol, version 1 or 2,
// in which a balancer names the client. The handler hears of the connection when its header has come: Conn.RemoteAddr and
// LocalAddr are then the header's, and Conn.ProxyHeader has the rest. A connection is reset if it begins with anything else, with a
// header of more than 4 KiB, or has no whole one within this time; 0 is 10 s. Server.ProxyCounters counts them.
//
// Whoever can connect says which address it has, so let only balancers do that. There is no way to take connections with and
// without headers on one address: the protocol forbids it. Everything but Serve and Start refuses the option; wrap the Listener
// of Listen as one of package net (github.com/pires/go-proxyproto).
func WithProxyProtocol(within time.Duration) Option {
	return func(c *config) {
		if c.headerWithin = within; within == 0 {
			c.headerWithin = 10 * time.Second
		}
	}
}

// ProxyHeader is what a balancer has said of the connection; nil without WithProxyProtocol. Any goroutine.
func (c *Conn) ProxyHeader() *ProxyHeader { return c.proxy }

// socketAddr is this end's address, whatever a balancer has said.
func (c *Conn) socketAddr() net.Addr {
	if c.proxy != nil {
		return c.proxy.Local
	}
	return c.local
}

// proxyCounters count headers.
type proxyCounters struct {
	proxied, local, malformed, late, ended atomic.Uint64
}

// ProxyCounters are what became of connections with WithProxyProtocol, by the names of docs/metrics.md; none without it.
func (s *Server) ProxyCounters() Counters {
	if s.config.headerWithin == 0 {
		return nil
	}
	count := func(name, about string, of *atomic.Uint64) Counter {
		return Counter{Name: "proxy_protocol_" + name, About: about, Value: of.Load()}
	}
	return Counters{
		count("proxied", "Connections whose header of the PROXY protocol named the client", &s.headers.proxied),
		count("local", "Connections whose header named nobody: LOCAL, UNKNOWN, UNSPEC, or datagrams", &s.headers.local),
		count("malformed", "Connections reset as what came first was no header, or one past the limit", &s.headers.malformed),
		count("late", "Connections reset as their header did not come in time", &s.headers.late),
		count("ended", "Connections that their peers ended before the header had come, checks of balancers included",
			&s.headers.ended),
	}
}

var (
	errHeaderLate  = errors.New("the header did not come in time")
	errHeaderEnded = errors.New("the peer ended before the header had come")
)

// headerSink waits for the header of a connection, and gives it to its handler.
type headerSink struct {
	to      *handlerSink
	bytes   []byte // of the header, if it comes in pieces
	refused bool
}

// runsHandler is whether a sink may call a Handler.
func runsHandler(to sink) bool {
	switch to.(type) {
	case *handlerSink, *headerSink:
		return true
	}
	return false
}

func (s *headerSink) opened(c *Conn) {
	s.to.server.add(c)
	_ = c.SetDeadline(time.Now().Add(s.to.config.headerWithin)) // or it is closing already
}

func (s *headerSink) data(c *Conn, view []byte) {
	if c.IsClosed() {
		return
	}
	// Mostly it comes in one piece, and is read where it is.
	before := len(s.bytes)
	seen := view
	if before > 0 {
		// What is behind the limit is no part of a header.
		s.bytes = append(s.bytes, view[:min(len(view), proxyheader.DefaultLimit-before)]...)
		seen = s.bytes
	}
	header, length, err := proxyheader.Decode(seen, proxyheader.DefaultLimit)
	switch {
	case err != nil:
		s.refuse(c, &s.to.server.headers.malformed, err)
	case header != nil:
		s.handOver(c, header, view[length-before:])
	case before == 0:
		s.bytes = append([]byte(nil), view...)
	}
}

// handOver makes the connection the handler's.
func (s *headerSink) handOver(c *Conn, header *proxyheader.Header, rest []byte) {
	c.proxy = &ProxyHeader{
		Version: header.Version, Source: header.Source, Destination: header.Destination, Peer: c.remote, Local: c.local,
	}
	for _, value := range header.Values {
		c.proxy.Values = append(c.proxy.Values, ProxyValue(value))
	}
	counter := &s.to.server.headers.local
	if header.Source != nil {
		c.remote, c.local = header.Source, header.Destination
		counter = &s.to.server.headers.proxied
	}
	counter.Add(1)
	_ = c.SetDeadline(time.Time{}) // or it is closing already
	c.sink = s.to
	s.to.opened(c)
	if len(rest) > 0 {
		c.sink.data(c, rest) // a net.Conn's, if the handler has made it one
	}
}

// refuse ends a connection that its handler has not heard of.
func (s *headerSink) refuse(c *Conn, counter *atomic.Uint64, reason error) {
	if s.refused || c.IsClosed() {
		return
	}
	s.refused = true
	counter.Add(1)
	s.to.config.logger.Debug("quoit: a connection has no header of the PROXY protocol", "peer", c.remote, "reason", reason)
	if reason == errHeaderEnded && len(s.bytes) == 0 {
		_ = c.Close() // a balancer's check that only connects
		return
	}
	_ = c.Abort() // or it has ended
}

func (s *headerSink) ended(c *Conn) {
	s.refuse(c, &s.to.server.headers.ended, errHeaderEnded)
}

func (s *headerSink) deadline(c *Conn) {
	s.refuse(c, &s.to.server.headers.late, errHeaderLate)
}

func (s *headerSink) writable(*Conn) {}

func (s *headerSink) draining(c *Conn) { _ = c.Close() }

func (s *headerSink) closed(c *Conn, _ error) { s.to.server.remove(c) }
