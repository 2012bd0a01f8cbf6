package quoit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// datagramHandler is a DatagramHandler made of functions; those that are nil do nothing.
type datagramHandler struct {
	datagram func(s *quoit.DatagramSocket, batch []quoit.Datagram)
	writable func(s *quoit.DatagramSocket)
	failed   func(s *quoit.DatagramSocket, err error)
	closed   func(s *quoit.DatagramSocket, err error)
}

func (h *datagramHandler) OnDatagram(s *quoit.DatagramSocket, batch []quoit.Datagram) {
	if h.datagram != nil {
		h.datagram(s, batch)
	}
}

func (h *datagramHandler) OnWritable(s *quoit.DatagramSocket) {
	if h.writable != nil {
		h.writable(s)
	}
}

func (h *datagramHandler) OnError(s *quoit.DatagramSocket, err error) {
	if h.failed != nil {
		h.failed(s, err)
	}
}

func (h *datagramHandler) OnClose(s *quoit.DatagramSocket, err error) {
	if h.closed != nil {
		h.closed(s, err)
	}
}

// answers sends each datagram back.
func answers(t *testing.T) *datagramHandler {
	return &datagramHandler{datagram: func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
		if len(batch) == 0 {
			t.Error("a batch of nothing")
		}
		for index := range batch {
			if err := s.Reply(&batch[index], batch[index].Bytes); err != nil {
				t.Error(err)
			}
		}
	}}
}

func startDatagrams(t *testing.T, network, address string, h quoit.DatagramHandler, options ...quoit.Option) *quoit.DatagramServer {
	t.Helper()
	server, err := quoit.StartDatagrams(network, address, h, append([]quoit.Option{quiet(), quoit.WithLoops(2)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil && err != quoit.ErrShutdown {
			t.Error(err)
		}
	})
	return server
}

func dialUDP(t *testing.T, to net.Addr) *net.UDPConn {
	t.Helper()
	connection := dial(t, to)
	return connection.(*net.UDPConn)
}

// ask sends a datagram and expects the answer.
func ask(t *testing.T, connection net.Conn, question, answer string) {
	t.Helper()
	if _, err := connection.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 1<<16)
	n, err := connection.Read(memory)
	if err != nil {
		t.Fatal(err)
	}
	if string(memory[:n]) != answer {
		t.Fatalf("%d bytes came back, and not %d of %.20q", n, len(answer), answer)
	}
}

func TestDatagramsAreAnswered(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := startDatagrams(t, "udp", "127.0.0.1:0", answers(t), engine)
		for client := range 8 {
			connection := dialUDP(t, server.Addr())
			for _, length := range []int{1, 0, 100, 1472, 20_000} {
				text := strings.Repeat(string(rune('a'+client)), length)
				ask(t, connection, text, text)
			}
		}
		received := uint64(0)
		for _, socket := range server.Sockets() {
			counters, err := socket.Counters()
			if err != nil {
				t.Fatal(err)
			}
			received += counters.Received
		}
		if received != 8*5 {
			t.Errorf("%d datagrams were counted, and not 40", received)
		}
	})
}

// On one processor loops wait in Go's poller.
func TestDatagramsOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := startDatagrams(t, "udp", "127.0.0.1:0", answers(t), engine, quoit.WithLoops(1))
		connection := dialUDP(t, server.Addr())
		for range 100 {
			ask(t, connection, "hello", "hello")
		}
		conn := listenPacket(t, "udp", "127.0.0.1:0", engine)
		for range 100 {
			if _, err := conn.WriteTo([]byte("hello"), server.Addr()); err != nil {
				t.Fatal(err)
			}
			if n, _, err := conn.ReadFrom(make([]byte, 16)); n != 5 || err != nil {
				t.Fatal(n, err)
			}
		}
	})
}

func TestWhatIsKnownOfDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		came := make(chan quoit.Datagram, 4)
		handler := &datagramHandler{datagram: func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
			for _, one := range batch {
				one.Bytes = bytes.Clone(one.Bytes)
				came <- one
			}
		}}
		server := startDatagrams(t, "udp4", ":0", handler, engine, quoit.WithDatagramDetails(), quoit.WithMaxDatagram(10))
		at := server.Addr().(*net.UDPAddr)
		at.IP = net.IPv4(127, 0, 0, 1)
		connection := dialUDP(t, at)
		connection.Write([]byte("short"))
		one := receive(t, came)
		if string(one.Bytes) != "short" || one.Truncated || one.Addr().String() != connection.LocalAddr().String() {
			t.Errorf("%+v", one)
		}
		if server.Loops().Engine() != quoit.EngineStd {
			if one.Local != netip.MustParseAddr("127.0.0.1") || one.Interface == 0 || time.Since(one.Time) > time.Hour {
				t.Errorf("%+v", one)
			}
		}
		connection.Write([]byte("rather too long"))
		if one = receive(t, came); string(one.Bytes) != "rather too" || !one.Truncated {
			t.Errorf("%+v", one)
		}
	})
}

// Segments leave in their order, from the address that is asked for.
func TestMessages(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := startDatagrams(t, "udp", "127.0.0.1:0", &datagramHandler{}, engine, quoit.WithLoops(1))
		peer, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		peer.SetDeadline(time.Now().Add(patience))
		to := peer.LocalAddr().(*net.UDPAddr).AddrPort()
		socket := server.Sockets()[0]
		if err := socket.Send(quoit.Message{Bytes: []byte("aabbc"), To: to, SegmentSize: 2, ECN: 1}); err != nil {
			t.Fatal(err)
		}
		for _, expected := range []string{"aa", "bb", "c"} {
			memory := make([]byte, 16)
			n, from, err := peer.ReadFrom(memory)
			if err != nil || string(memory[:n]) != expected || from.String() != server.Addr().String() {
				t.Errorf("%q from %v, %v", memory[:n], from, err)
			}
		}
		for _, refused := range []quoit.Message{
			{Bytes: make([]byte, 65_508), To: to},
			{Bytes: []byte("a")},
			{Bytes: []byte("a"), To: to, SegmentSize: -1},
			{Bytes: make([]byte, 1<<20), To: to, SegmentSize: 1000},
		} {
			if err := socket.Send(refused); err == nil {
				t.Errorf("%d bytes to %v were taken", len(refused.Bytes), refused.To)
			}
		}
		if err := socket.WriteTo(make([]byte, 65_508), to); !errors.Is(err, syscall.EMSGSIZE) {
			t.Error(err)
		}
		if err := socket.Send(quoit.Message{Bytes: make([]byte, 1<<20), To: to, SegmentSize: 1000}); err != quoit.ErrTooLarge {
			t.Error(err)
		}
	})
}

// What the kernel refuses later is told with the size, and the socket goes on.
func TestErrorsOfDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		failures := make(chan error, 4)
		handler := answers(t)
		handler.failed = func(_ *quoit.DatagramSocket, err error) { failures <- err }
		server := startDatagrams(t, "udp4", "127.0.0.1:0", handler, engine, quoit.WithLoops(1))
		// Broadcast is not allowed, but on package net; nowhere can anybody be reached by port 0.
		to := netip.MustParseAddrPort("127.0.0.1:0")
		if err := server.Sockets()[0].WriteTo([]byte("hello"), to); err != nil {
			t.Fatal(err)
		}
		var told *quoit.DatagramError
		if err := receive(t, failures); !errors.As(err, &told) || !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
		ask(t, dialUDP(t, server.Addr()), "still there", "still there")
	})
}

// nobody is an address of this host that answers every datagram by ICMP: its socket is connected to somebody else, and
// keeps the port from being taken.
func nobody(t *testing.T) netip.AddrPort {
	t.Helper()
	deaf, err := net.Dial("udp4", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deaf.Close() })
	return deaf.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Who cannot be reached is told, on a socket that is connected to nobody, and nobody else loses a datagram for it.
func TestWhoCannotBeReachedIsTold(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, network := range []string{"udp4", "udp"} {
			failures := make(chan error, 4)
			handler := answers(t)
			handler.failed = func(_ *quoit.DatagramSocket, err error) { failures <- err }
			server := startDatagrams(t, network, "127.0.0.1:0", handler, engine, quoit.WithLoops(1), quoit.WithReceiveErrors())
			for range 3 {
				peer := nobody(t)
				if err := server.Sockets()[0].WriteTo([]byte("hello?"), peer); err != nil {
					t.Fatal(err)
				}
				ask(t, dialUDP(t, server.Addr()), "still there", "still there")
				var told *quoit.DatagramError
				err := receive(t, failures)
				if !errors.As(err, &told) || told.Peer != peer || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%v, and not that of %v", err, peer)
				}
			}
		}
	})
}

func TestAFullQueueOfDatagrams(t *testing.T) {
	for _, engine := range engines() {
		if engine == quoit.EngineStd {
			continue // the kernel's own queue makes who sends wait
		}
		t.Run(engine.String(), func(t *testing.T) {
			written, writable := make(chan int, 1), make(chan struct{}, 8)
			handler := &datagramHandler{
				// The loop takes nothing while its handler runs.
				datagram: func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
					count := 0
					for s.WriteTo(make([]byte, 1000), batch[0].Peer) == nil {
						count++
					}
					if err := s.WriteTo(make([]byte, 1000), batch[0].Peer); err != quoit.ErrFull {
						t.Error(err)
					}
					written <- count
				},
				writable: func(s *quoit.DatagramSocket) {
					if s.Queued() > 1000 {
						t.Errorf("%d bytes are queued", s.Queued())
					}
					writable <- struct{}{}
				},
			}
			server := startDatagrams(t, "udp", "127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
				quoit.WithWaterMarks(4000, 1000))
			connection := dialUDP(t, server.Addr())
			connection.Write([]byte("go"))
			if count := receive(t, written); count != 4 {
				t.Errorf("%d were taken", count)
			}
			receive(t, writable)
			for range 4 {
				if n, err := connection.Read(make([]byte, 2000)); n != 1000 || err != nil {
					t.Error(n, err)
				}
			}
		})
	}
}

// What was queued leaves; then OnClose comes, once, and the calls say so.
func TestShuttingDownDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		closed := make(chan error, 4)
		handler := &datagramHandler{closed: func(_ *quoit.DatagramSocket, err error) { closed <- err }}
		server := startDatagrams(t, "udp", "127.0.0.1:0", handler, engine, quoit.WithLoops(1))
		peer := listenPacket(t, "udp", "127.0.0.1:0", engine)
		socket := server.Sockets()[0]
		if err := socket.WriteTo([]byte("last"), peer.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
			t.Fatal(err)
		}
		if err := server.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n, from, err := peer.ReadFrom(make([]byte, 16)); n != 4 || err != nil || from.String() != server.Addr().String() {
			t.Error(n, from, err)
		}
		if err := receive(t, closed); err != nil || len(closed) > 0 {
			t.Error(err)
		}
		if err := socket.WriteTo([]byte("a"), netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := socket.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := socket.Counters(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
		if err := server.Shutdown(context.Background()); err != quoit.ErrShutdown {
			t.Error(err)
		}
	})
}

// Loops that close take their sockets along.
func TestLoopsCloseTheirDatagramSockets(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		handler := &datagramHandler{closed: func(_ *quoit.DatagramSocket, err error) { closed <- err }}
		startDatagrams(t, "udp", "127.0.0.1:0", handler, quoit.OnLoops(loops))
		loops.Close()
		receive(t, closed)
		if _, err := quoit.StartDatagrams("udp", "127.0.0.1:0", handler, quoit.OnLoops(loops)); !errors.Is(err, quoit.ErrShutdown) {
			t.Error(err)
		}
	})
}

func TestUnixDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		folder := t.TempDir()
		server := startDatagrams(t, "unixgram", filepath.Join(folder, "server"), answers(t), engine)
		client := listenPacket(t, "unixgram", filepath.Join(folder, "client"), engine)
		if _, err := client.WriteTo([]byte("hello"), server.Addr()); err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, 16)
		n, from, err := client.ReadFrom(memory)
		if err != nil || string(memory[:n]) != "hello" || from.String() != server.Addr().String() {
			t.Errorf("%q from %v, %v", memory[:n], from, err)
		}
	})
}

// A wildcard of IPv6 takes IPv4, shows its addresses as such, and answers from the address that was asked.
func TestDatagramsOfBothFamilies(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		peers := make(chan netip.AddrPort, 4)
		handler := answers(t)
		answer := handler.datagram
		handler.datagram = func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
			peers <- batch[0].Peer
			answer(s, batch)
		}
		server := startDatagrams(t, "udp", ":0", handler, engine, quoit.WithLoops(1), quoit.WithDatagramDetails())
		port := server.Addr().(*net.UDPAddr).Port
		hosts := []string{"127.0.0.2", "::1"}
		if server.Loops().Engine() == quoit.EngineStd {
			hosts[0] = "127.0.0.1" // package net leaves the source to the kernel
		}
		for _, host := range hosts {
			to := &net.UDPAddr{IP: net.ParseIP(host), Port: port}
			if to.IP.To4() == nil && !server.Addr().(*net.UDPAddr).AddrPort().Addr().Is6() {
				t.Skip("this machine has no IPv6")
			}
			connection := dialUDP(t, to)
			ask(t, connection, "hello", "hello")
			if from := receive(t, peers); from.String() != connection.LocalAddr().String() {
				t.Errorf("%v was seen as %v", connection.LocalAddr(), from)
			}
		}
	})
}

func TestDatagramsThatCannotBe(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		taken := listenPacket(t, "udp", "127.0.0.1:0", engine)
		for _, wrong := range []struct{ network, address string }{
			{"udp", taken.LocalAddr().String()}, {"udp", "nowhere"}, {"tcq", "127.0.0.1:0"}, {"udp", "192.0.2.1:0"},
		} {
			_, err := quoit.StartDatagrams(wrong.network, wrong.address, &datagramHandler{}, quiet(), engine, quoit.WithLoops(1))
			var operation *net.OpError
			if !errors.As(err, &operation) {
				t.Errorf("%v: %v", wrong, err)
			}
			if _, err := quoit.ListenPacket(wrong.network, wrong.address, quiet(), engine); !errors.As(err, &operation) {
				t.Errorf("%v: %v", wrong, err)
			}
		}
		for _, option := range []quoit.Option{
			quoit.WithMaxDatagram(0), quoit.WithMaxDatagram(70_000), quoit.WithDatagramSlots(0), quoit.WithSocketBuffers(-1, 0),
		} {
			if _, err := quoit.ListenPacket("udp", "127.0.0.1:0", quiet(), engine, option); err == nil {
				t.Error("an option that makes no sense was taken")
			}
		}
	})
}

func ExampleStartDatagrams() {
	server, err := quoit.StartDatagrams("udp", "127.0.0.1:0", upperCase{}, quoit.WithLoops(1), quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(context.Background())
	connection, err := net.Dial("udp", server.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer connection.Close()
	fmt.Fprint(connection, "hello")
	answer := make([]byte, 16)
	n, err := connection.Read(answer)
	fmt.Println(string(answer[:n]), err)
	// Output: HELLO <nil>
}

// upperCase answers in capitals.
type upperCase struct{ quoit.BaseDatagramHandler }

func (upperCase) OnDatagram(s *quoit.DatagramSocket, batch []quoit.Datagram) {
	for index := range batch {
		// What there is no room for is lost, as on the way.
		_ = s.Reply(&batch[index], bytes.ToUpper(batch[index].Bytes))
	}
}
