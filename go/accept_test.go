package quoit_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// accept takes a connection, and notes an error.
func (r *recorder) accept(l net.Listener) net.Conn {
	conn, err := l.Accept()
	if err != nil {
		r.see("accept", err)
		return nil
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// local listens on a port of this host, or on a path.
func (d *door) local(t *testing.T, network string) net.Listener {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := d.listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Who connects and is gone before Accept is still accepted, with its address and what it sent.
func TestWhoHasGoneIsAcceptedAsByPackageNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				l := d.local(r.t, network)
				peer := dial(r.t, l.Addr())
				io.WriteString(peer, "hello")
				peer.Close()
				conn := r.accept(l)
				all, err := io.ReadAll(conn)
				r.see("who ended", conn.RemoteAddr().String() == peer.LocalAddr().String(), string(all), err)
				if network != "tcp" {
					return
				}
				peer = dial(r.t, l.Addr())
				(&ends{peer: peer}).resets()
				conn = r.accept(l)
				n, err := conn.Read(make([]byte, 1))
				r.see("who reset", conn.RemoteAddr().String() == peer.LocalAddr().String(), n, err)
			})
		})
	}
}

// What becomes of a listener, and of those who have connected, when it is closed.
func TestListenersEndAsThoseOfPackageNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				l := d.local(r.t, network)
				address := l.Addr()
				accepted := dial(r.t, address)
				conn := r.accept(l)
				waiting := dial(r.t, address)
				r.see("close", l.Close())
				r.see("close again", l.Close())
				r.accept(l)
				r.see("its address", l.Addr().String() == address.String())
				_, err := net.Dial(network, address.String())
				r.see("who comes later", err != nil)
				// Nobody will ever accept it.
				_, err = io.Copy(io.Discard, waiting)
				r.see("who waited is served", err == nil && network == "tcp")
				roundTrips := make(chan error, 1)
				go func() { _, err := io.Copy(conn, conn); roundTrips <- err }()
				roundTrip(r.t, accepted, "still here")
				accepted.Close()
				r.see("who was accepted", receive(r.t, roundTrips))
				again, err := d.listen(network, address.String())
				r.see("the address is free", err)
				if err == nil {
					again.Close()
				}
			})
		})
	}
}

// A wait for Accept ends with the listener.
func TestAcceptWaitsAsOnPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		l := d.local(r.t, "tcp")
		r.waits("accept", func() (int, error) { _, err := l.Accept(); return 0, err }, func() { l.Close() })
	})
}

// limited is a net.Listener of which so many connections at most are open, as golang.org/x/net/netutil's.
type limited struct {
	net.Listener
	room chan struct{}
}

func (l limited) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: conn, room: l.room}, nil
}

type limitedConn struct {
	net.Conn
	once sync.Once
	room chan struct{}
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.room })
	return err
}

// Behind a limit the others are connected, and wait; they are served in their order when there is room.
func TestALimitOfConnectionsIsAsOnPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		l := limited{d.local(r.t, "tcp"), make(chan struct{}, 2)}
		var peers []net.Conn
		for number := range 6 {
			peer := dial(r.t, l.Addr())
			fmt.Fprint(peer, number)
			peers = append(peers, peer)
		}
		first, second := r.accept(l), r.accept(l)
		for _, conn := range []net.Conn{first, second} {
			answer := make([]byte, 1)
			_, err := io.ReadFull(conn, answer)
			r.see("served", string(answer), err)
		}
		select {
		case l.room <- struct{}{}:
			r.see("there is room")
		default:
			r.see("there is none")
		}
		for range 4 {
			first.Close()
			first = r.accept(l)
			answer := make([]byte, 1)
			_, err := io.ReadFull(first, answer)
			r.see("served", string(answer), err)
		}
		_ = peers
	})
}
