package quoit

import (
	"fmt"
	"net"
	"net/netip"
)

// datagramConfig is what concerns datagram sockets only.
type datagramConfig struct {
	maxDatagram, datagramSlots int
	gro, details, broadcast    bool
	errors                     bool
	receiveBuffer, sendBuffer  int
	groups                     []multicastGroup
}

// multicastGroup is one to be a member of; interface 0 is the kernel's choice.
type multicastGroup struct {
	address netip.Addr
	index   int
}

func newMulticastGroup(group netip.Addr, on *net.Interface) multicastGroup {
	one := multicastGroup{address: group.Unmap().WithZone("")}
	if on != nil {
		one.index = on.Index
	}
	return one
}

func (g multicastGroup) check() error {
	if !g.address.IsMulticast() {
		return fmt.Errorf("%v is not a multicast group", g.address)
	}
	return nil
}

func defaultDatagrams() datagramConfig {
	return datagramConfig{maxDatagram: maxUDPPayload, datagramSlots: 64}
}

func (c *datagramConfig) check() error {
	switch {
	case c.maxDatagram < 1 || c.maxDatagram > maxUDPPayload:
		return fmt.Errorf("quoit: WithMaxDatagram(%d): the length must be from 1 to 65,527", c.maxDatagram)
	case c.datagramSlots < 1 || c.datagramSlots > 1<<15:
		return fmt.Errorf("quoit: WithDatagramSlots(%d): the number must be from 1 to 32,768", c.datagramSlots)
	case c.receiveBuffer < 0 || c.sendBuffer < 0 || c.receiveBuffer > 1<<30 || c.sendBuffer > 1<<30:
		return fmt.Errorf("quoit: WithSocketBuffers(%d, %d): sizes must be from 0 to 1 GiB", c.receiveBuffer, c.sendBuffer)
	}
	for _, group := range c.groups {
		if err := group.check(); err != nil {
			return fmt.Errorf("quoit: WithMulticastGroup: %w", err)
		}
	}
	return nil
}

// WithMaxDatagram sets the longest datagram that is received, in bytes; what is longer comes cut, and says so. It saves
// memory where the protocol is known to stay within the path's MTU. No effect beside WithGRO. Default: 65,527, which is
// all that UDP can carry.
func WithMaxDatagram(bytes int) Option { return func(c *config) { c.maxDatagram = bytes } }

// WithDatagramSlots sets how many datagrams of one socket may wait to be handled or read, beyond what the kernel's own
// memory holds. Each takes memory of the longest datagram's size, which is touched as it is used. Default: 64.
func WithDatagramSlots(number int) Option { return func(c *config) { c.datagramSlots = number } }

// WithGRO lets the kernel join datagrams of one sender on their way up, which come apart again before they are delivered.
// No effect on EngineStd. Default: off.
func WithGRO() Option { return func(c *config) { c.gro = true } }

// WithDatagramDetails fills in Local, Interface, ECN and Time of each Datagram. No effect on EngineStd. Default: off.
func WithDatagramDetails() Option { return func(c *config) { c.details = true } }

// WithReceiveErrors tells which peers the network did not bring datagrams to (IP_RECVERR), on sockets that are connected
// to one and on all others. Each answer by ICMP is told to OnError of a handler, with DatagramError.Peer; and to a reader of
// a PacketConn, as a *net.OpError with the peer as its Addr, after which it goes on reading. A reader that is behind is told
// of 64 at most, and of the last one if the socket is connected. ICMP can be forged by whoever sees the traffic. No effect on
// EngineStd. Default: off, and only sockets that are connected are told, without an address.
func WithReceiveErrors() Option { return func(c *config) { c.errors = true } }

// WithBroadcast allows sending to broadcast addresses. Default: off; ListenPacket and a Dialer always allow it, as package net
// does.
func WithBroadcast() Option { return func(c *config) { c.broadcast = true } }

// WithSocketBuffers sets the kernel's memory of a datagram socket for receiving and sending (SO_RCVBUF, SO_SNDBUF), in
// bytes; 0 is the system's default.
func WithSocketBuffers(receive, send int) Option {
	return func(c *config) { c.receiveBuffer, c.sendBuffer = receive, send }
}

// WithMulticastGroup makes a datagram socket a member of the group, on the interface, or on that of the kernel's choice
// if it is nil. On EngineStd one group is possible, and the socket is bound to it.
func WithMulticastGroup(group netip.Addr, on *net.Interface) Option {
	return func(c *config) {
		c.groups = append(c.groups, newMulticastGroup(group, on))
	}
}
