package quoit_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

func listenPacket(t *testing.T, network, address string, options ...quoit.Option) *quoit.PacketConn {
	t.Helper()
	conn, err := quoit.ListenPacket(network, address, append([]quoit.Option{quiet()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func TestPacketConnsTalk(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		one, other := listenPacket(t, "udp", "127.0.0.1:0", engine), listenPacket(t, "udp4", ":0", engine)
		to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: other.LocalAddr().(*net.UDPAddr).Port}
		memory := make([]byte, 1<<16)
		for _, length := range []int{5, 0, 20_000} {
			if n, err := one.WriteTo(make([]byte, length), to); n != length || err != nil {
				t.Fatal(n, err)
			}
			n, from, err := other.ReadFrom(memory)
			if n != length || err != nil || from.String() != one.LocalAddr().String() {
				t.Fatal(n, from, err)
			}
			if n, err := other.WriteTo(memory[:n], from); n != length || err != nil {
				t.Fatal(n, err)
			}
			if n, from, err := one.ReadFromUDPAddrPort(memory); n != length || err != nil || from.String() != to.String() {
				t.Fatal(n, from, err)
			}
		}
		// What does not fit is lost, and nothing of the next one.
		one.WriteTo([]byte("long"), to)
		one.WriteTo([]byte("next"), to)
		for _, expected := range []string{"lo", "ne"} {
			if n, _, err := other.ReadFrom(memory[:2]); err != nil || string(memory[:n]) != expected {
				t.Errorf("%q, %v", memory[:n], err)
			}
		}
	})
}

// Many readers and writers at once: each datagram is read once, whole.
func TestPacketConnsFromManyGoroutines(t *testing.T) {
	const goroutines, each = 8, 200
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		one, other := listenPacket(t, "udp", "127.0.0.1:0", engine), listenPacket(t, "udp", "127.0.0.1:0", engine)
		var writers, readers sync.WaitGroup
		seen := make(map[string]int)
		var lock sync.Mutex
		tokens := make(chan struct{}, 64) // in flight: few enough that none is dropped
		for range goroutines {
			readers.Go(func() {
				memory := make([]byte, 64)
				for {
					n, from, err := other.ReadFrom(memory)
					if errors.Is(err, net.ErrClosed) {
						return
					}
					if err != nil || from.String() != one.LocalAddr().String() {
						t.Error(from, err)
						return
					}
					lock.Lock()
					seen[string(memory[:n])]++
					lock.Unlock()
					<-tokens
				}
			})
		}
		for writer := range goroutines {
			writers.Go(func() {
				for number := range each {
					tokens <- struct{}{}
					if _, err := one.WriteTo(fmt.Appendf(nil, "%d/%d", writer, number), other.LocalAddr()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		writers.Wait()
		for range cap(tokens) {
			tokens <- struct{}{} // all were read
		}
		other.Close()
		readers.Wait()
		if len(seen) != goroutines*each {
			t.Errorf("%d different datagrams came", len(seen))
		}
		for text, count := range seen {
			if count != 1 {
				t.Errorf("%q came %d times", text, count)
			}
		}
	})
}

func TestDeadlinesOfPacketConns(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conn := listenPacket(t, "udp", "127.0.0.1:0", engine)
		memory := make([]byte, 16)
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		var timeout net.Error
		for range 2 {
			if _, _, err := conn.ReadFrom(memory); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Error(err)
			}
		}
		// One in the past wakes who waits.
		conn.SetReadDeadline(time.Time{})
		failures := make(chan error)
		go func() {
			_, _, err := conn.ReadFrom(memory)
			failures <- err
		}()
		conn.SetReadDeadline(time.Unix(1, 0))
		if err := receive(t, failures); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		conn.SetWriteDeadline(time.Unix(1, 0))
		if _, err := conn.WriteTo(memory, conn.LocalAddr()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		// And none lets it go on.
		conn.SetDeadline(time.Time{})
		if _, err := conn.WriteTo([]byte("self"), conn.LocalAddr()); err != nil {
			t.Error(err)
		}
		if n, _, err := conn.ReadFrom(memory); n != 4 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestClosingAPacketConnWithAReader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conn := listenPacket(t, "udp", "127.0.0.1:0", engine)
		failures := make(chan error)
		for range 3 {
			go func() {
				_, _, err := conn.ReadFrom(make([]byte, 16))
				failures <- err
			}()
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := receive(t, failures); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := conn.WriteTo([]byte("a"), conn.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := conn.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := conn.Close(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// What was not read goes back, so that a shared loop's memory is whole, and what was written before leaves.
func TestClosingAPacketConnWithDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
		if err != nil {
			t.Fatal(err)
		}
		defer loops.Close()
		first := listenPacket(t, "udp", "127.0.0.1:0", quoit.OnLoops(loops), quoit.WithDatagramSlots(4))
		second := listenPacket(t, "udp", "127.0.0.1:0", quoit.OnLoops(loops))
		for range 8 {
			if _, err := second.WriteTo([]byte("unread"), first.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, _, err := first.ReadFrom(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
		}
		first.WriteTo([]byte("last"), second.LocalAddr())
		first.Close()
		memory := make([]byte, 16)
		if n, _, err := second.ReadFrom(memory); err != nil || string(memory[:n]) != "last" {
			t.Errorf("%q, %v", memory[:n], err)
		}
	})
}

func TestErrorsOfPacketConns(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conn := listenPacket(t, "udp4", "127.0.0.1:0", engine)
		if _, err := conn.WriteTo(make([]byte, 65_508), conn.LocalAddr()); !errors.Is(err, syscall.EMSGSIZE) {
			t.Error(err)
		}
		if _, err := conn.WriteTo([]byte("a"), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}); err == nil {
			t.Error("a datagram went to TCP")
		}
		// A peer that is not there is nobody's fault, and the socket goes on.
		gone := listenPacket(t, "udp4", "127.0.0.1:0", engine)
		nobody := gone.LocalAddr()
		gone.Close()
		if _, err := conn.WriteTo([]byte("hello?"), nobody); err != nil {
			t.Error(err)
		}
		if _, err := conn.WriteTo([]byte("self"), conn.LocalAddr()); err != nil {
			t.Error(err)
		}
		if n, _, err := conn.ReadFrom(make([]byte, 16)); n != 4 || err != nil {
			t.Error(n, err)
		}
	})
}

// A reader is told who could not be reached, of each one, and reads on.
func TestPacketConnsTellWhoCannotBeReached(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		conn := listenPacket(t, "udp4", "127.0.0.1:0", engine, quoit.WithReceiveErrors())
		for range 3 {
			peer := nobody(t)
			if _, err := conn.WriteToUDPAddrPort([]byte("hello?"), peer); err != nil {
				t.Fatal(err)
			}
			var told *net.OpError
			_, _, err := conn.ReadFrom(make([]byte, 16))
			if !errors.As(err, &told) || told.Op != "read" || !errors.Is(err, syscall.ECONNREFUSED) ||
				told.Addr == nil || told.Addr.String() != peer.String() {
				t.Fatalf("%v, and not that of %v", err, peer)
			}
			if _, err := conn.WriteTo([]byte("self"), conn.LocalAddr()); err != nil {
				t.Error(err)
			}
			if n, _, err := conn.ReadFrom(make([]byte, 16)); n != 4 || err != nil {
				t.Error(n, err)
			}
		}
	})
}

// A writer past the queue's end waits for room, and all of it arrives in the end: nothing is refused below.
func TestWritersOfAPacketConnWait(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conn := listenPacket(t, "udp", "127.0.0.1:0", engine, quoit.WithWaterMarks(2000, 0))
		to := listenPacket(t, "udp", "127.0.0.1:0", engine)
		for range 300 {
			if _, err := conn.WriteTo(make([]byte, 1000), to.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		if n, _, err := to.ReadFrom(make([]byte, 2000)); n != 1000 || err != nil {
			t.Error(n, err)
		}
		if conn.Loops().Engine() == quoit.EngineStd {
			return
		}
		counters, err := conn.Counters()
		if err != nil || counters.SendsRefused != 0 || counters.SendErrors != 0 {
			t.Errorf("%+v, %v", counters, err)
		}
	})
}

// The methods that would wait say so on the thread of their own loop.
func TestPacketConnsOnTheirOwnLoop(t *testing.T) {
	for _, engine := range engines() {
		if engine == quoit.EngineStd {
			continue // there it may wait
		}
		t.Run(engine.String(), func(t *testing.T) {
			loops, err := quoit.NewLoops(quoit.WithEngine(engine), quiet(), quoit.WithLoops(1))
			if err != nil {
				t.Fatal(err)
			}
			defer loops.Close()
			conn := listenPacket(t, "udp", "127.0.0.1:0", quoit.OnLoops(loops))
			failures := make(chan error, 1)
			server := startDatagrams(t, "udp", "127.0.0.1:0", &datagramHandler{
				datagram: func(*quoit.DatagramSocket, []quoit.Datagram) {
					_, _, err := conn.ReadFrom(make([]byte, 16))
					failures <- err
				},
			}, quoit.OnLoops(loops))
			dialUDP(t, server.Addr()).Write([]byte("go"))
			if err := receive(t, failures); !errors.Is(err, quoit.ErrOnLoop) {
				t.Error(err)
			}
		})
	}
}

func ExampleListenPacket() {
	conn, err := quoit.ListenPacket("udp", "127.0.0.1:0", quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	if _, err := conn.WriteTo([]byte("to myself"), conn.LocalAddr()); err != nil {
		fmt.Println(err)
		return
	}
	memory := make([]byte, 64)
	n, from, err := conn.ReadFrom(memory)
	fmt.Println(string(memory[:n]), from.String() == conn.LocalAddr().String(), err)
	// Output: to myself true <nil>
}

// A connection of datagrams has one peer, learns that nobody is there, and goes on.
func TestDialDatagrams(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		dialer := newDialer(t, engine)
		peer, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := peer.LocalAddr().String()
		conn, err := dialer.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if conn.RemoteAddr().String() != address {
			t.Errorf("connected to %v and not %v", conn.RemoteAddr(), address)
		}
		if local := conn.LocalAddr().(*net.UDPAddr); !local.IP.IsLoopback() || local.Port == 0 {
			t.Errorf("the local address is %v", local)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_ = peer.SetDeadline(time.Now().Add(patience))

		// Whoever else sends to it is not heard.
		stranger, err := net.Dial("udp", conn.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		_, _ = stranger.Write([]byte("stranger"))

		buffer := make([]byte, 100)
		for round := range 20 {
			sent := bytes.Repeat([]byte{byte(round)}, round*3)
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			n, from, err := peer.ReadFrom(buffer)
			if err != nil || !bytes.Equal(buffer[:n], sent) || from.String() != conn.LocalAddr().String() {
				t.Fatalf("%x from %v, %v, and not %x from %v", buffer[:n], from, err, sent, conn.LocalAddr())
			}
			if _, err := peer.WriteTo(buffer[:n], from); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(buffer); err != nil || !bytes.Equal(buffer[:n], sent) {
				t.Fatalf("%x, %v, and not %x", buffer[:n], err, sent)
			}
		}

		peer.Close()
		if _, err := conn.Write([]byte("anybody?")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(buffer); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody is there, and a read answers %v", err)
		}
		again, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Skipf("the port was taken meanwhile: %v", err)
		}
		defer again.Close()
		_ = again.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("now?")); err != nil {
			t.Fatal(err)
		}
		if n, _, err := again.ReadFrom(buffer); err != nil || string(buffer[:n]) != "now?" {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(buffer); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed one answers %v", err)
		}
	})
}

// A datagram for a Unix socket whose reader is slow waits, and is not dropped: as with package net.
func TestUnixDatagramsWaitForTheirReader(t *testing.T) {
	const count = 1000
	all := func(t *testing.T, writer, reader net.PacketConn) {
		t.Helper()
		for _, conn := range []net.PacketConn{writer, reader} {
			_ = conn.SetDeadline(time.Now().Add(patience))
		}
		sent := make(chan error, 1)
		go func() {
			for number := range count {
				if _, err := writer.WriteTo([]byte(fmt.Sprint(number)), reader.LocalAddr()); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		buffer := make([]byte, 100)
		for number := range count {
			n, from, err := reader.ReadFrom(buffer)
			if err != nil || string(buffer[:n]) != fmt.Sprint(number) || from.String() != writer.LocalAddr().String() {
				t.Fatalf("%d: %q from %v, %v", number, buffer[:n], from, err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		_ = reader.Close()
		if _, err := writer.WriteTo([]byte("x"), reader.LocalAddr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	}
	t.Run("stock", func(t *testing.T) {
		folder := t.TempDir()
		var ends []net.PacketConn
		for _, name := range []string{"writer", "reader"} {
			conn, err := net.ListenPacket("unixgram", filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			ends = append(ends, conn)
		}
		all(t, ends[0], ends[1])
	})
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		folder := t.TempDir()
		all(t, listenPacket(t, "unixgram", filepath.Join(folder, "writer"), engine),
			listenPacket(t, "unixgram", filepath.Join(folder, "reader"), engine))
	})
}

// The loops of a socket end with it, also where the socket is package net's.
func TestTheLoopsOfAPacketConnEndWithIt(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for network, address := range map[string]string{"udp": "127.0.0.1:0", "unixgram": filepath.Join(t.TempDir(), "socket")} {
			conn, err := quoit.ListenPacket(network, address, engine, quiet())
			if err != nil {
				t.Fatal(err)
			}
			if conn.Loops().Counters()[0] == nil {
				t.Error(network, "the loop has no counters")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(patience); conn.Loops().Counters()[0] != nil; runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal(network, "its loop goes on")
				}
			}
		}
	})
}
