package quoit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// door is what makes listeners and connections: package net, or ours.
type door struct {
	listen       func(network, address string) (net.Listener, error)
	listenPacket func(network, address string) (net.PacketConn, error)
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

// compareDoors runs a test with package net, then with ours on each engine.
func compareDoors(t *testing.T, known *difference, run func(r *recorder, d *door)) {
	stock := &recorder{t: t}
	// Package net's listeners are of Multipath TCP otherwise, of which the kernel does not tell the zone of an address.
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	listen := func(network, address string) (net.Listener, error) {
		return plain.Listen(t.Context(), network, address)
	}
	run(stock, &door{listen, net.ListenPacket, (&net.Dialer{}).DialContext})
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		ours := &recorder{t: t}
		run(ours, &door{
			func(network, address string) (net.Listener, error) {
				l, err := quoit.Listen(network, address, engine, quiet())
				if err != nil {
					return nil, err
				}
				return l, nil
			},
			func(network, address string) (net.PacketConn, error) {
				p, err := quoit.ListenPacket(network, address, engine, quiet())
				if err != nil {
					return nil, err
				}
				return p, nil
			},
			newDialer(t, engine).DialContext,
		})
		compare(t, stock.trace, ours.trace, known)
	})
}

// place notes an address but for its port.
func (r *recorder) place(what string, address net.Addr) {
	switch one := address.(type) {
	case *net.TCPAddr:
		r.see(what, fmt.Sprintf("%T", one), one.Network(), one.IP, one.Port != 0)
	case *net.UDPAddr:
		r.see(what, fmt.Sprintf("%T", one), one.Network(), one.IP, one.Port != 0)
	case *net.UnixAddr:
		r.see(what, fmt.Sprintf("%T", one), one.Net, filepath.Base(one.Name))
	default:
		r.see(what, fmt.Sprintf("%T", one))
	}
}

var loopbacks = []string{"127.0.0.1", "::1"}

// at is where a listener is, if it listens at that host.
func at(host string, l net.Listener) string {
	return net.JoinHostPort(host, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
}

// reachesStranger says whether somebody listens at the listener's port where a listener of this network and address does not:
// another process, which the kernel has given the same port of the other family. Nobody would accept what is dialed there.
func reachesStranger(network string, l net.Listener) bool {
	ip := l.Addr().(*net.TCPAddr).IP
	for _, host := range loopbacks {
		ofHost := net.ParseIP(host)
		sameFamily := (ip.To4() == nil) == (ofHost.To4() == nil)
		bothFamilies := network == "tcp" && ip.Equal(net.IPv6unspecified)
		if bothFamilies || sameFamily && (ip.IsUnspecified() || ip.Equal(ofHost)) {
			continue
		}
		if stranger, err := net.Dial("tcp", at(host, l)); err == nil {
			stranger.Close()
			return true
		}
	}
	return false
}

// What can be listened on, and what that is called.
func TestAddressesAreThoseOfPackageNet(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1:0", "localhost:0", ":0", "", "[::]:0", "0.0.0.0:0", "[::1]:0", "127.0.0.1:99999", "127.0.0.1:none",
		"127.0.0.1", "[::1", ":", "[::ffff:127.0.0.1]:0",
	} {
		for _, network := range []string{"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "sctp"} {
			t.Run(network+" "+address, func(t *testing.T) {
				compareDoors(t, nil, func(r *recorder, d *door) {
					if network[:3] == "udp" {
						conn, err := d.listenPacket(network, address)
						if err != nil {
							r.see("listen", err)
							return
						}
						defer conn.Close()
						r.place("local", conn.LocalAddr())
						return
					}
					l, err := d.listen(network, address)
					if err != nil {
						r.see("listen", err)
						return
					}
					for elsewhere := 0; reachesStranger(network, l); elsewhere++ {
						l.Close()
						if elsewhere == 10 {
							r.t.Fatalf("%v of %s can be reached where package net does not listen", l.Addr(), network)
						}
						if l, err = d.listen(network, address); err != nil {
							r.t.Fatal(err)
						}
					}
					defer l.Close()
					r.place("local", l.Addr())
					for _, host := range loopbacks {
						peer, err := net.Dial("tcp", at(host, l))
						if err != nil {
							r.see(host, err)
							continue
						}
						conn, err := l.Accept()
						if err != nil {
							r.t.Fatal(err)
						}
						r.place(host+" local", conn.LocalAddr())
						r.place(host+" remote", conn.RemoteAddr())
						conn.Close()
						peer.Close()
					}
				})
			})
		}
	}
}

// Unix sockets: their names, their files, and those who have none.
func TestUnixSocketsAreThoseOfPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		folder := r.t.TempDir()
		path := filepath.Join(folder, "socket")
		_, err := d.listen("unix", filepath.Join(folder, "no", "socket"))
		r.see("no folder", err)
		l, err := d.listen("unix", path)
		if err != nil {
			r.t.Fatal(err)
		}
		r.place("local", l.Addr())
		_, err = d.listen("unix", path)
		r.see("in use", err)
		conn, err := d.dial(context.Background(), "unix", path)
		if err != nil {
			r.t.Fatal(err)
		}
		other, err := l.Accept()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, one := range []net.Conn{conn, other} {
			r.place("local", one.LocalAddr())
			r.place("remote", one.RemoteAddr())
			r.see("as text", one.LocalAddr().String() == path, one.RemoteAddr().String() == path)
		}
		other.Close()
		conn.Close()
		r.see("close", l.Close())
		_, err = os.Stat(path)
		r.see("its file", err)
		_, err = d.dial(context.Background(), "unix", path)
		r.see("nobody", err)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
		_, err = d.dial(context.Background(), "unix", path)
		r.see("a file that is no socket", err)
		_, err = d.listen("unix", path)
		r.see("on a file that is no socket", err)
	})
}

// A Unix socket without a name is given one, which can be dialled.
func TestAUnixSocketWithoutANameIsThatOfPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		l, err := d.listen("unix", "")
		if err != nil {
			r.see("listen", err)
			return
		}
		defer l.Close()
		name := l.Addr().String()
		r.see("local", l.Addr().Network(), name[0] == '@', len(name) > 1)
		conn, err := d.dial(r.t.Context(), "unix", name)
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		other := r.accept(l)
		r.see("as text", other.LocalAddr().String() == name, conn.RemoteAddr().String() == name)
		r.see("close", l.Close())
		_, err = d.dial(r.t.Context(), "unix", name)
		r.see("nobody", err)
	})
}

// Dialling: what fails, and how.
func TestDiallingFailsAsWithPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		over, cancel := context.WithCancel(r.t.Context())
		cancel()
		late, cancel := context.WithDeadline(r.t.Context(), time.Unix(1, 0))
		defer cancel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		there := l.Addr().String()
		defer l.Close()
		_, err = d.listen("tcp", there)
		r.see("an address in use", err)
		for _, one := range []struct {
			what             string
			ctx              context.Context
			network, address string
		}{
			{"nobody", r.t.Context(), "tcp", refusing(r.t)},
			{"cancelled", over, "tcp", there},
			{"too late", late, "tcp", there},
			{"cancelled udp", over, "udp", there},
			{"too late udp", late, "udp", there},
			{"cancelled unix", over, "unix", "/nobody"},
			{"a family that the network has not", r.t.Context(), "tcp6", there},
			{"a family that the network has not", r.t.Context(), "tcp4", "[::1]:1"},
			{"no port", r.t.Context(), "tcp", "127.0.0.1"},
			{"a port that cannot be", r.t.Context(), "tcp", "127.0.0.1:99999"},
			{"nothing", r.t.Context(), "tcp", ""},
			{"a network that is not known", r.t.Context(), "sctp", there},
		} {
			conn, err := d.dial(one.ctx, one.network, one.address)
			r.see(one.what, conn == nil, err)
			if err != nil {
				r.see("as text", err.Error() != "", err == context.Canceled)
			} else {
				conn.Close()
			}
		}
	})
}

// Hosts that are dialled: those with a name, without one, and those that mean this one.
func TestHostsAreDialledAsByPackageNet(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6"} {
		for _, host := range []string{"", "0.0.0.0", "::", "127.0.0.1", "localhost", "::ffff:127.0.0.1", "::1", "::1%lo"} {
			t.Run(network+" "+host, func(t *testing.T) {
				compareDoors(t, nil, func(r *recorder, d *door) {
					conn, err := d.dial(r.t.Context(), network, net.JoinHostPort(host, port))
					if err != nil {
						r.see("dial", err)
						// Code asks what was not reached, and where that is. Of no host package net has the port alone.
						if op := (*net.OpError)(nil); errors.As(err, &op) && op.Addr != nil && host != "" {
							r.place("not reached", op.Addr)
							r.see("as text", op.Addr)
						}
						return
					}
					defer conn.Close()
					r.place("local", conn.LocalAddr())
					r.place("remote", conn.RemoteAddr())
					r.see("as text", conn.RemoteAddr())
				})
			})
		}
	}
	t.Run("unix", func(t *testing.T) {
		compareDoors(t, nil, func(r *recorder, d *door) {
			for _, path := range []string{"", "/nobody"} {
				_, err := d.dial(r.t.Context(), "unix", path)
				r.see(path, err)
				if op := (*net.OpError)(nil); errors.As(err, &op) && op.Addr != nil {
					r.place("not reached", op.Addr)
				}
			}
		})
	})
}

// A context that ends when the connection is there does nothing to it.
func TestAContextIsForDiallingOnly(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		conn, err := d.dial(ctx, "tcp", l.Addr().String())
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		cancel()
		peer, err := l.Accept()
		if err != nil {
			r.t.Fatal(err)
		}
		io.WriteString(peer, "hello")
		peer.Close()
		all, err := io.ReadAll(conn)
		r.see("read", string(all), err)
	})
}

// Nobody waits for room in the backlog of a Unix socket.
func TestAFullBacklogOfAUnixSocket(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		path := filepath.Join(r.t.TempDir(), "socket")
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		defer syscall.Close(fd)
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			r.t.Fatal(err)
		}
		if err := syscall.Listen(fd, 0); err != nil {
			r.t.Fatal(err)
		}
		first, err := d.dial(r.t.Context(), "unix", path)
		if err != nil {
			r.t.Fatal(err)
		}
		defer first.Close()
		second, err := d.dial(r.t.Context(), "unix", path)
		r.see("a full backlog of a Unix socket", second == nil, err)
	})
}

// What is sent over the other kinds of Unix sockets comes as it was sent, and what cannot be dialled fails, all as on package net.
func TestDialsTheOtherKindsOfUnixSockets(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		path := filepath.Join(r.t.TempDir(), "datagrams")
		receiver, err := net.ListenPacket("unixgram", path)
		if err != nil {
			r.t.Fatal(err)
		}
		defer receiver.Close()
		conn, err := d.dial(r.t.Context(), "unixgram", path)
		if err != nil {
			r.t.Fatal(err)
		}
		memory := make([]byte, 10)
		for _, text := range []string{"one", "", "other"} {
			n, err := io.WriteString(conn, text)
			r.see("write", n, err)
			n, from, err := receiver.ReadFrom(memory)
			r.see("came", string(memory[:n]), fmt.Sprint(from), err)
		}
		r.see("addresses", conn.LocalAddr().Network(), conn.LocalAddr().String(), conn.RemoteAddr().Network())
		receiver.Close()
		_, err = io.WriteString(conn, "late")
		r.see("nobody", err)
		r.see("close", conn.Close())
		_, err = d.dial(r.t.Context(), "unixgram", filepath.Join(r.t.TempDir(), "none"))
		r.see("no file", err)

		packets := filepath.Join(r.t.TempDir(), "packets")
		listener, err := d.listen("unixpacket", packets)
		if err != nil {
			r.t.Fatal(err)
		}
		defer listener.Close()
		r.see("listens", listener.Addr().Network(), listener.Addr().String() == packets)
		conn, err = d.dial(r.t.Context(), "unixpacket", packets)
		if err != nil {
			r.t.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			r.t.Fatal(err)
		}
		io.WriteString(accepted, "one")
		io.WriteString(accepted, "other")
		for range 2 {
			n, err := conn.Read(memory)
			r.see("packet", string(memory[:n]), err)
		}
		accepted.Close()
		n, err := conn.Read(memory)
		r.see("end", n, err)
		r.see("close", conn.Close())
		r.see("listener", listener.Close(), listener.Close() != nil)
		_, err = os.Stat(packets)
		r.see("its file is gone", errors.Is(err, os.ErrNotExist))
		_, err = d.listen("unixpacket", filepath.Join(r.t.TempDir(), "no", "folder"))
		r.see("no folder", errors.Is(err, os.ErrNotExist))
		_, err = d.dial(r.t.Context(), "unixpacket", path)
		r.see("a socket of another kind", err)
		_, err = d.dial(r.t.Context(), "nothing", "here")
		r.see("no network", err)
		_, err = d.dial(r.t.Context(), "", "here")
		r.see("no name", err)
	})
}

// While nobody answers, the end of a context ends the attempt.
func TestAnAttemptEndsWithItsContext(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		defer syscall.Close(fd)
		if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			r.t.Fatal(err)
		}
		if err := syscall.Listen(fd, 0); err != nil {
			r.t.Fatal(err)
		}
		bound, err := syscall.Getsockname(fd)
		if err != nil {
			r.t.Fatal(err)
		}
		address := net.JoinHostPort("127.0.0.1", fmt.Sprint(bound.(*syscall.SockaddrInet4).Port))
		// The kernel answers until the backlog is full.
		for {
			within, cancel := context.WithTimeout(r.t.Context(), 500*time.Millisecond)
			conn, err := d.dial(within, "tcp", address)
			cancel()
			if err != nil {
				// Of package net it is the context's error or that of the poller, whichever is first; both say so.
				var timeout net.Error
				r.see("in time", errors.As(err, &timeout) && timeout.Timeout())
				break
			}
			defer conn.Close()
		}
		within, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		r.waits("the attempt", func() (int, error) { _, err := d.dial(within, "tcp", address); return 0, err }, cancel)
	})
}
