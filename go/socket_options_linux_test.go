package quoit_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// optionConn is what programs set options by, on a net.TCPConn as on a NetConn.
type optionConn interface {
	net.Conn
	syscall.Conn
	SetNoDelay(noDelay bool) error
	SetKeepAlive(keepAlive bool) error
	SetKeepAlivePeriod(period time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	SetLinger(seconds int) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	File() (*os.File, error)
	CloseWrite() error
}

var _ optionConn = (*net.TCPConn)(nil)

// options are those of the kernel's that a program can have set.
func options(t *testing.T, c optionConn) string {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	err = raw.Control(func(fd uintptr) {
		for _, option := range [][2]int{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT}, {syscall.SOL_SOCKET, syscall.SO_RCVBUF},
			{syscall.SOL_SOCKET, syscall.SO_SNDBUF},
		} {
			value, err := syscall.GetsockoptInt(int(fd), option[0], option[1])
			text += fmt.Sprint(value, err, " ")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// setOptions sets them one after the other, and tells how they are then.
func setOptions(t *testing.T, c optionConn) []string {
	t.Helper()
	var seen []string
	for _, set := range []func() error{
		func() error { return errors.Join(c.SetReadBuffer(50_000), c.SetWriteBuffer(60_000)) },
		func() error { return c.SetNoDelay(false) },
		func() error { return c.SetKeepAlive(false) },
		func() error { return c.SetKeepAlivePeriod(90 * time.Second) },
		func() error {
			return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 1500 * time.Millisecond, Count: 4})
		},
		func() error { return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}) },
		func() error { return c.SetNoDelay(true) },
	} {
		if err := set(); err != nil {
			t.Error(err)
		}
		seen = append(seen, options(t, c))
	}
	return seen
}

// lingers closes with no time to linger, and tells what the peer sees of what was written.
func lingers(t *testing.T, c optionConn, peer net.Conn) string {
	t.Helper()
	_ = peer.(*net.TCPConn).SetReadBuffer(4096)
	if err := c.SetLinger(0); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_ = peer.SetDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, peer)
	closedNoDelay, closedLinger := c.SetNoDelay(true), c.SetLinger(1)
	return fmt.Sprint(errors.Is(err, syscall.ECONNRESET), errors.Is(closedNoDelay, net.ErrClosed), errors.Is(closedLinger, net.ErrClosed))
}

func TestSocketOptionsAsPackageNet(t *testing.T) {
	accept := func(listener net.Listener, err error) (optionConn, net.Conn) {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = peer.Close() })
		c, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(optionConn), peer
	}
	stock, stockPeer := accept(net.Listen("tcp", ""))
	wants, wantLinger := setOptions(t, stock), lingers(t, stock, stockPeer)
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		ours, peer := accept(quoit.Listen("tcp", "", engine, quiet()))
		if found := setOptions(t, ours); fmt.Sprint(found) != fmt.Sprint(wants) {
			t.Errorf("%q, and of package net %q", found, wants)
		}
		if found := lingers(t, ours, peer); found != wantLinger {
			t.Errorf("%s, and of package net %s", found, wantLinger)
		}
	})
}

// packetConn is what programs set options by, on a net.UDPConn as on a PacketConn.
type packetConn interface {
	net.PacketConn
	syscall.Conn
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

func TestPacketOptionsAsPackageNet(t *testing.T) {
	setAndClose := func(c packetConn, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		seen := fmt.Sprint(c.SetReadBuffer(50_000), c.SetWriteBuffer(60_000))
		control := func() error {
			return raw.Control(func(fd uintptr) {
				for _, option := range []int{syscall.SO_TYPE, syscall.SO_RCVBUF, syscall.SO_SNDBUF} {
					value, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option)
					seen += fmt.Sprint(" ", value, err)
				}
			})
		}
		if err := control(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		_, again := c.SyscallConn()
		for _, err := range []error{c.SetReadBuffer(1), c.SetWriteBuffer(1), control()} {
			seen += fmt.Sprint(" ", errors.Is(err, net.ErrClosed))
		}
		return seen + fmt.Sprint(" ", again != nil)
	}
	stock, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := setAndClose(stock.(*net.UDPConn), nil)
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		if found := setAndClose(quoit.ListenPacket("udp", "127.0.0.1:0", engine, quiet())); found != want {
			t.Errorf("%s, and of package net %s", found, want)
		}
	})
}

// From the start, connections have the options of package net's: those that are accepted, and those that are dialled.
func TestOptionsAreThoseOfPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		l := d.local(r.t, "tcp")
		dialled, err := d.dial(r.t.Context(), "tcp", l.Addr().String())
		if err != nil {
			r.t.Fatal(err)
		}
		defer dialled.Close()
		for _, conn := range []net.Conn{dialled, r.accept(l)} {
			raw, err := conn.(syscall.Conn).SyscallConn()
			if err != nil {
				r.t.Fatal(err)
			}
			for _, one := range []struct {
				name          string
				level, option int
			}{
				{"TCP_NODELAY", syscall.IPPROTO_TCP, syscall.TCP_NODELAY},
				{"SO_KEEPALIVE", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
				{"TCP_KEEPIDLE", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
				{"TCP_KEEPINTVL", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
				{"TCP_KEEPCNT", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
				{"SO_REUSEADDR", syscall.SOL_SOCKET, syscall.SO_REUSEADDR},
				{"SO_LINGER", syscall.SOL_SOCKET, syscall.SO_LINGER},
				{"SO_OOBINLINE", syscall.SOL_SOCKET, syscall.SO_OOBINLINE},
				{"TCP_DEFER_ACCEPT", syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT},
			} {
				failure := raw.Control(func(fd uintptr) {
					value, err := getOption(fd, one.level, one.option)
					r.see(one.name, value, err)
				})
				r.see(one.name, failure)
			}
		}
	})
}

// Connections have the options that they were asked for: accepted or dialled, on loops of their own or on others'.
func TestConnectionsHaveTheOptionsThatWereAskedFor(t *testing.T) {
	stock, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	for _, period := range []time.Duration{0, -1, 42 * time.Second} {
		for _, noDelay := range []bool{true, false} {
			// What a connection of package net's has that is asked for the same.
			same := net.Dialer{KeepAlive: -1, KeepAliveConfig: net.KeepAliveConfig{Enable: period > 0, Idle: period, Interval: period}}
			connection, err := same.Dial("tcp", stock.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if err := connection.(*net.TCPConn).SetNoDelay(noDelay); err != nil {
				t.Fatal(err)
			}
			want := keeps(t, connection)
			connection.Close()
			for _, shared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %v, shared %v", period, noDelay, shared), func(t *testing.T) {
					onEngines(t, func(t *testing.T, engine quoit.Option) {
						asked := []quoit.Option{engine, quiet(), quoit.WithKeepAlive(period), quoit.WithNoDelay(noDelay)}
						if shared {
							loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
							if err != nil {
								t.Fatal(err)
							}
							t.Cleanup(func() { _ = loops.Close() })
							asked = append(asked, quoit.OnLoops(loops))
						}
						l, err := quoit.Listen("tcp", "127.0.0.1:0", asked...)
						if err != nil {
							t.Fatal(err)
						}
						defer l.Close()
						dialer, err := quoit.NewDialer(asked...)
						if err != nil {
							t.Fatal(err)
						}
						defer dialer.Close()
						dialled, err := dialer.Dial("tcp", l.Addr().String())
						if err != nil {
							t.Fatal(err)
						}
						defer dialled.Close()
						accepted, err := l.Accept()
						if err != nil {
							t.Fatal(err)
						}
						defer accepted.Close()
						if found := keeps(t, dialled); found != want {
							t.Errorf("dialled: %s, and of package net %s", found, want)
						}
						if found := keeps(t, accepted); found != want {
							t.Errorf("accepted: %s, and of package net %s", found, want)
						}
					})
				})
			}
		}
	}
}

// keeps tells how a connection delays what it sends, and asks an idle peer.
func keeps(t *testing.T, conn net.Conn) (text string) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, option := range [][2]int{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
		} {
			value, err := getOption(fd, option[0], option[1])
			text += fmt.Sprint(value, err, " ")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A panic, or a runtime.Goexit, of a function that is given the descriptor is its caller's, and no loop's.
func TestWhatEndsAControlFunctionEndsItsCallerOnly(t *testing.T) {
	type ending struct {
		recovered any
		exited    bool
	}
	// ends has a function that is given the descriptor end so, and returns what its caller has come to.
	ends := func(t *testing.T, of syscall.Conn, end func()) ending {
		raw, err := of.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan ending, 1)
		go func() {
			exited := true
			defer func() {
				recovered := recover()
				ended <- ending{recovered, exited && recovered == nil}
			}()
			_ = raw.Control(func(uintptr) { end() })
			exited = false
		}()
		return receive(t, ended)
	}
	panics := errors.New("as asked")
	both := func(t *testing.T, listener net.Listener, packets net.PacketConn) (found []ending) {
		defer listener.Close()
		defer packets.Close()
		client := dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.Copy(client, client)
		for _, of := range []any{conn, packets} {
			for _, end := range []func(){func() { panic(panics) }, runtime.Goexit, func() {}} {
				found = append(found, ends(t, of.(syscall.Conn), end))
				roundTrip(t, conn, "after")
			}
		}
		return found
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := both(t, listener, packets)
	if want[0].recovered != panics || !want[1].exited || want[2].exited {
		t.Fatal(want)
	}
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		packets, err := quoit.ListenPacket("udp", "127.0.0.1:0", engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if found := both(t, listener, packets); !slices.Equal(found, want) {
			t.Errorf("%v, and of package net %v", found, want)
		}
	})
}
