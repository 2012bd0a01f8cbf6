package quoit_test

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// packets is what a program sees of a datagram socket.
type packets struct {
	recorder
	network string
	conn    net.PacketConn // under test, without a peer
	client  net.Conn       // under test, with the peer as its own
	peer    *net.UDPConn   // package net's
}

func (p *packets) readFrom(size int) {
	memory := make([]byte, size)
	n, from, err := p.conn.ReadFrom(memory)
	p.see("read", n, fmt.Sprintf("%q", memory[:n]), fmt.Sprintf("%T", from), p.isPeer(from), err)
}

// isPeer is whether an address is the peer's, as it is written.
func (p *packets) isPeer(address net.Addr) bool {
	return address != nil && address.Network() == "udp" && address.String() == p.peer.LocalAddr().String()
}

func (p *packets) writeTo(what string, size int, to net.Addr) {
	n, err := p.conn.WriteTo(make([]byte, size), to)
	p.see("write to "+what, n, err)
}

func (p *packets) read(size int) {
	n, err := p.client.Read(make([]byte, size))
	p.see("the client reads", n, err)
}

func (p *packets) write(size int) {
	n, err := p.client.Write(make([]byte, size))
	p.see("the client writes", n, err)
}

func (p *packets) peerReads() (from net.Addr) {
	n, from, err := p.peer.ReadFrom(make([]byte, 1<<16))
	p.see("the peer reads", n, err)
	return from
}

// option notes an option of a socket.
func (p *packets) option(what string, of any, level, name int) {
	raw, err := of.(syscall.Conn).SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	value := -1
	failure := raw.Control(func(fd uintptr) { value, err = getOption(fd, level, name) })
	p.see(what, value, err, failure)
}

var packetLives = []struct {
	name    string
	differs *difference
	run     func(p *packets)
}{
	{"to and from a peer", nil, func(p *packets) {
		for _, size := range []int{1, 0, 1000, 9000} {
			p.writeTo("the peer", size, p.peer.LocalAddr())
			from := p.peerReads()
			p.see("from", fmt.Sprintf("%T", from), from.String() == p.conn.LocalAddr().String())
			p.peer.WriteTo(make([]byte, size), from)
			p.readFrom(1 << 16)
			p.write(size)
			from = p.peerReads()
			p.see("from the client", from.String() == p.client.LocalAddr().String())
			p.peer.WriteTo(make([]byte, size), from)
			p.read(1 << 16)
		}
	}},
	{"more than there is room for", nil, func(p *packets) {
		for _, text := range []string{"long", "next", "last"} {
			p.peer.WriteTo([]byte(text), p.conn.LocalAddr())
			p.peer.WriteTo([]byte(text), p.client.LocalAddr())
		}
		p.readFrom(2)
		p.readFrom(0)
		p.readFrom(10)
		p.read(2)
		p.read(0)
		p.read(10)
	}},
	{"more than fits into a datagram", nil, func(p *packets) {
		p.writeTo("the peer", 65_536, p.peer.LocalAddr())
		p.write(65_536)
		p.writeTo("the peer", 65_507, p.peer.LocalAddr())
		p.peerReads()
		p.write(65_507)
		p.peerReads()
	}},
	{"addresses", nil, func(p *packets) {
		for _, one := range []net.Addr{p.conn.LocalAddr(), p.client.LocalAddr(), p.client.RemoteAddr()} {
			p.see("address", fmt.Sprintf("%T", one), one.Network(), one.(*net.UDPAddr).IP, one.(*net.UDPAddr).Port != 0)
		}
		p.see("the remote one", p.isPeer(p.client.RemoteAddr()))
	}},
	{"peers that cannot be", nil, func(p *packets) {
		port := p.peer.LocalAddr().(*net.UDPAddr).Port
		p.writeTo("nil", 1, nil)
		p.writeTo("no address of UDP", 1, (*net.UDPAddr)(nil))
		p.writeTo("TCP", 1, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		p.writeTo("a Unix socket", 1, &net.UnixAddr{Name: "/nobody", Net: "unixgram"})
		p.writeTo("port 0", 1, &net.UDPAddr{IP: p.peer.LocalAddr().(*net.UDPAddr).IP})
		p.writeTo("half an address", 1, &net.UDPAddr{IP: net.IP{127, 0}, Port: port})
	}},
	{"a peer of the other family", nil, func(p *packets) {
		port := p.peer.LocalAddr().(*net.UDPAddr).Port
		if p.network == "udp4" {
			p.writeTo("IPv6", 1, &net.UDPAddr{IP: net.IPv6loopback, Port: port})
		} else if p.network == "udp6" {
			p.writeTo("IPv4", 1, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		}
	}},
	{"this host", nil, func(p *packets) {
		p.writeTo("no host", 1, &net.UDPAddr{Port: p.peer.LocalAddr().(*net.UDPAddr).Port})
		if p.network != "udp6" {
			p.peerReads()
		}
	}},
	{"nobody", nil, func(p *packets) {
		p.peer.Close()
		p.writeTo("nobody", 1, p.peer.LocalAddr())
		p.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		p.readFrom(1)
		p.write(1)
		p.read(1)
		p.client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		p.read(1)
	}},
	{"nobody, and who goes on writing", nil, func(p *packets) {
		p.peer.Close()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := p.client.Write([]byte("anybody?")); err != nil {
				p.see("a later write", err)
				return
			}
		}
		p.see("no write fails")
	}},
	{"deadlines", nil, func(p *packets) {
		for _, one := range []struct {
			conn interface {
				SetReadDeadline(time.Time) error
				SetWriteDeadline(time.Time) error
				SetDeadline(time.Time) error
				LocalAddr() net.Addr
			}
			read, write func()
		}{
			{p.conn, func() { p.readFrom(1) }, func() { p.writeTo("the peer", 1, p.peer.LocalAddr()) }},
			{p.client, func() { p.read(1) }, func() { p.write(1) }},
		} {
			p.see("deadline", one.conn.SetReadDeadline(time.Now().Add(-time.Second)))
			one.read()
			p.see("deadline", one.conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
			one.read()
			p.see("deadline", one.conn.SetWriteDeadline(time.Now().Add(-time.Second)))
			one.write()
			p.see("deadline", one.conn.SetDeadline(time.Time{}))
			one.write()
			p.peer.WriteTo([]byte("a"), one.conn.LocalAddr())
			one.read()
		}
	}},
	{"a deadline while a read waits", nil, func(p *packets) {
		p.waits("the read", func() (int, error) { n, _, err := p.conn.ReadFrom(make([]byte, 1)); return n, err }, func() {
			p.conn.SetReadDeadline(time.Unix(1, 0))
		})
		p.waits("the client's", func() (int, error) { return p.client.Read(make([]byte, 1)) }, func() {
			p.client.SetDeadline(time.Unix(1, 0))
		})
	}},
	{"close while a read waits", nil, func(p *packets) {
		p.waits("the read", func() (int, error) { n, _, err := p.conn.ReadFrom(make([]byte, 1)); return n, err }, func() {
			p.see("close", p.conn.Close())
		})
		p.waits("the client's", func() (int, error) { return p.client.Read(make([]byte, 1)) }, func() {
			p.see("close", p.client.Close())
		})
	}},
	{"after close", nil, func(p *packets) {
		p.peer.WriteTo([]byte("unread"), p.conn.LocalAddr())
		p.see("close", p.conn.Close(), p.client.Close())
		p.see("again", p.conn.Close(), p.client.Close())
		p.readFrom(1)
		p.writeTo("the peer", 1, p.peer.LocalAddr())
		p.writeTo("nil", 1, nil)
		p.read(1)
		p.write(1)
		p.see("deadline", p.conn.SetDeadline(time.Now()), p.client.SetDeadline(time.Now()))
		p.see("read buffer", p.conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(1<<16))
		p.see("write buffer", p.client.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1<<16))
		p.see("address", p.conn.LocalAddr().(*net.UDPAddr).Port != 0, p.isPeer(p.client.RemoteAddr()))
	}},
	{"what code asks a client for", nil, func(p *packets) {
		conn, is := p.client.(net.PacketConn)
		p.see("it is a net.PacketConn", is)
		if !is {
			return
		}
		n, err := conn.WriteTo([]byte("a"), p.peer.LocalAddr())
		p.see("write to", n, err, errors.Is(err, net.ErrWriteToConnected))
		p.peer.WriteTo([]byte("ab"), p.client.LocalAddr())
		n, from, err := conn.ReadFrom(make([]byte, 10))
		p.see("read from", n, p.isPeer(from), err)
	}},
	{"options", nil, func(p *packets) {
		p.option("SO_BROADCAST", p.conn, syscall.SOL_SOCKET, syscall.SO_BROADCAST)
		p.option("SO_BROADCAST of the client", p.client, syscall.SOL_SOCKET, syscall.SO_BROADCAST)
		p.option("SO_REUSEADDR", p.conn, syscall.SOL_SOCKET, syscall.SO_REUSEADDR)
	}},
}

// What a program sees of a datagram socket is the same on package net, which comes first, and on each engine.
func TestDatagramsAreAsThoseOfPackageNet(t *testing.T) {
	dialer := &net.Dialer{}
	for network, address := range map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0", "udp": "127.0.0.1:0"} {
		peer := func(t *testing.T) *net.UDPConn {
			peer, err := net.ListenPacket(network, address)
			if err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { peer.Close() })
			peer.SetDeadline(time.Now().Add(patience))
			return peer.(*net.UDPConn)
		}
		trace := func(t *testing.T, run func(*packets), conn net.PacketConn, err error, dial func(network, address string) (net.Conn, error)) []string {
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			p := &packets{recorder: recorder{t: t}, network: network, conn: conn, peer: peer(t)}
			if p.client, err = dial(network, p.peer.LocalAddr().String()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.client.Close() })
			conn.SetDeadline(time.Now().Add(patience))
			p.client.SetDeadline(time.Now().Add(patience))
			run(p)
			return p.trace
		}
		for _, life := range packetLives {
			t.Run(network+"/"+life.name, func(t *testing.T) {
				peer(t)
				conn, err := net.ListenPacket(network, address)
				stock := trace(t, life.run, conn, err, dialer.Dial)
				onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
					conn, err := quoit.ListenPacket(network, address, engine, quiet())
					ours := trace(t, life.run, conn, err, newDialer(t, engine).Dial)
					compare(t, stock, ours, life.differs)
				})
			})
		}
	}
}

// A socket of both families tells of peers of IPv4 as package net's does, and reaches them.
func TestDatagramsOfBothFamiliesAreAsThoseOfPackageNet(t *testing.T) {
	run := func(t *testing.T, conn net.PacketConn, err error) []string {
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { conn.Close() })
		r := &recorder{t: t}
		local := conn.LocalAddr().(*net.UDPAddr)
		r.see("local", local.IP, local.Port != 0, local.Network())
		conn.SetDeadline(time.Now().Add(patience))
		for _, host := range []string{"127.0.0.1", "::1"} {
			peer, err := net.Dial("udp", net.JoinHostPort(host, fmt.Sprint(local.Port)))
			if err != nil {
				t.Skip(err)
			}
			defer peer.Close()
			peer.SetDeadline(time.Now().Add(patience))
			peer.Write([]byte("hello"))
			memory := make([]byte, 10)
			n, from, err := conn.ReadFrom(memory)
			if err != nil {
				t.Fatal(host, err)
			}
			r.see("read", n, strings.TrimSuffix(from.String(), fmt.Sprint(from.(*net.UDPAddr).Port)), err)
			n, err = conn.WriteTo(memory[:3], from)
			r.see("write", n, err)
			n, err = peer.Read(memory)
			r.see("the peer reads", n, err)
		}
		return r.trace
	}
	conn, err := net.ListenPacket("udp", "[::]:0")
	stock := run(t, conn, err)
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		conn, err := quoit.ListenPacket("udp", "[::]:0", engine, quiet())
		compare(t, stock, run(t, conn, err), nil)
	})
}

// What only the kernel knows of a peer, it says when the datagram leaves.
func TestADatagramThatTheKernelRefuses(t *testing.T) {
	compareDoors(t, &difference{
		"WriteTo has returned then, as the datagram was queued; it is counted",
		map[string]string{"it fails true": "it fails false"},
	}, func(r *recorder, d *door) {
		conn, err := d.listenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		// From an IPv4 address of loopback the kernel lets nothing leave for another host.
		_, err = conn.WriteTo([]byte("a"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
		r.see("it fails", err != nil)
		ours, is := conn.(*quoit.PacketConn)
		if !is {
			return
		}
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if counters, err := ours.Counters(); err != nil || counters.SendErrors == 1 {
				return
			}
			runtime.Gosched()
		}
		r.t.Error("nothing is counted")
	})
}
