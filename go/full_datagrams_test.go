package quoit_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// text notes an error as it is printed, but for the addresses.
func (r *recorder) text(what string, err error, addresses ...net.Addr) {
	text := fmt.Sprint(err)
	for number, one := range addresses {
		text = strings.ReplaceAll(text, one.String(), fmt.Sprintf("<%d>", number))
	}
	r.see(what, text)
}

// pair is a socket under test for Unix datagrams, and a reader of package net's.
func (d *door) pair(t *testing.T) (conn net.PacketConn, reader *net.UnixConn) {
	t.Helper()
	folder := t.TempDir()
	conn, err := d.listenPacket("unixgram", filepath.Join(folder, "writer"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	reader, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(folder, "reader"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	reader.SetDeadline(time.Now().Add(patience))
	return conn, reader
}

// fills sends numbers until the reader has no room, and tells how many those are.
func fills(r *recorder, write func(b []byte) (int, error), setDeadline func(time.Time) error) int {
	for count := 0; ; count++ {
		setDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := write([]byte(strconv.Itoa(count)))
		if err != nil {
			r.see("a write that waits", n, err)
			setDeadline(time.Time{})
			return count
		}
	}
}

// drains notes which of so many numbers come in their order.
func drains(r *recorder, reader net.PacketConn, count int) {
	memory, right := make([]byte, 100), 0
	for number := range count {
		n, _, err := reader.ReadFrom(memory)
		if err != nil {
			r.see("read", err)
			return
		}
		if string(memory[:n]) == strconv.Itoa(number) {
			right++
		}
	}
	r.see("in their order", right == count)
}

// A writer to a Unix socket whose reader is slow.
var fullUnixgrams = []struct {
	name string
	run  func(r *recorder, conn net.PacketConn, reader *net.UnixConn)
}{
	{"deadlines", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		write := func(b []byte) (int, error) { return conn.WriteTo(b, reader.LocalAddr()) }
		count := fills(r, write, conn.SetWriteDeadline)
		r.see("taken", count)
		conn.SetWriteDeadline(time.Unix(1, 0))
		n, err := write([]byte("lost"))
		r.see("a write whose time is over", n, err)
		r.text("its text", err, conn.LocalAddr(), reader.LocalAddr())
		conn.SetWriteDeadline(time.Time{})
		r.waits("a deadline while one waits", func() (int, error) { return write([]byte("lost")) }, func() {
			conn.SetWriteDeadline(time.Unix(1, 0))
		})
		drains(r, reader, count)
		n, err = write([]byte("lost"))
		r.see("the deadline stays", n, err)
		conn.SetWriteDeadline(time.Time{})
		n, err = write([]byte("0"))
		r.see("there is room again", n, err)
		drains(r, reader, 1)
	}},
	{"a reader that reads at last", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		write := func(b []byte) (int, error) { return conn.WriteTo(b, reader.LocalAddr()) }
		count := fills(r, write, conn.SetWriteDeadline)
		r.waits("the write", func() (int, error) { return write([]byte(strconv.Itoa(count))) }, func() { drains(r, reader, count+1) })
	}},
	{"close while a write waits", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		write := func(b []byte) (int, error) { return conn.WriteTo(b, reader.LocalAddr()) }
		count := fills(r, write, conn.SetWriteDeadline)
		r.waits("the write", func() (int, error) { return write([]byte("lost")) }, func() { r.see("close", conn.Close()) })
		drains(r, reader, count)
	}},
	{"the reader closes while a write waits", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		write := func(b []byte) (int, error) { return conn.WriteTo(b, reader.LocalAddr()) }
		fills(r, write, conn.SetWriteDeadline)
		r.waits("the write", func() (int, error) { return write([]byte("lost")) }, func() { reader.Close() })
	}},
	{"too long", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		if err := conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1); err != nil {
			r.t.Fatal(err)
		}
		n, err := conn.WriteTo(make([]byte, 1<<20), reader.LocalAddr())
		r.see("written", n, err)
		r.text("its text", err, conn.LocalAddr(), reader.LocalAddr())
	}},
	{"more than there is room for", func(r *recorder, conn net.PacketConn, reader *net.UnixConn) {
		for _, text := range []string{"long", "next"} {
			if _, err := reader.WriteTo([]byte(text), conn.LocalAddr()); err != nil {
				r.t.Fatal(err)
			}
		}
		memory := make([]byte, 10)
		n, _, err := conn.ReadFrom(memory[:2])
		r.see("read", string(memory[:n]), err)
		n, _, err = conn.ReadFrom(memory)
		r.see("read", string(memory[:n]), err)
	}},
}

func TestFullUnixDatagramsAreAsThoseOfPackageNet(t *testing.T) {
	for _, one := range fullUnixgrams {
		t.Run(one.name, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				conn, reader := d.pair(r.t)
				one.run(r, conn, reader)
			})
		})
	}
}

// A client of one reader, which is slow.
func TestADialledUnixDatagramWaitsAsThatOfPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		_, reader := d.pair(r.t)
		conn, err := d.dial(r.t.Context(), "unixgram", reader.LocalAddr().String())
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		count := fills(r, conn.Write, conn.SetWriteDeadline)
		r.see("taken", count)
		r.waits("the write", func() (int, error) { return conn.Write([]byte(strconv.Itoa(count))) }, func() { drains(r, reader, count+1) })
	})
}

// Errors of datagrams that are too long, and as what they are printed.
func TestTooLongDatagramsAreRefusedAsByPackageNet(t *testing.T) {
	for _, one := range []struct {
		network, address string
		most             int
	}{
		{"udp4", "127.0.0.1:0", 65_507},
		{"udp6", "[::1]:0", 65_527},
	} {
		t.Run(one.network, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				conn, err := d.listenPacket(one.network, one.address)
				if err != nil {
					r.t.Skip(err)
				}
				defer conn.Close()
				client, err := d.dial(r.t.Context(), one.network, conn.LocalAddr().String())
				if err != nil {
					r.t.Fatal(err)
				}
				defer client.Close()
				if _, err := dialUDP(r.t, conn.LocalAddr()).Write(make([]byte, one.most)); err != nil {
					r.t.Fatal(err)
				}
				n, _, err := conn.ReadFrom(make([]byte, 1<<16))
				r.see("read", n, err)
				for _, size := range []int{65_507, 65_508, 65_527, 65_528, 65_536, 1 << 20} {
					n, err := conn.WriteTo(make([]byte, size), client.LocalAddr())
					r.see(fmt.Sprint("written of ", size), n, err)
					r.text(fmt.Sprint("the text of ", size), err, conn.LocalAddr(), client.LocalAddr())
					n, err = client.Write(make([]byte, size))
					r.see(fmt.Sprint("the client has written of ", size), n, err)
					r.text(fmt.Sprint("the client's text of ", size), err, conn.LocalAddr(), client.LocalAddr())
				}
			})
		})
	}
}

// What a socket of both families sends to one of IPv4 may be no longer than IPv4's.
func TestTooLongDatagramsToIPv4AreRefusedByASocketOfBothFamilies(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		conn, err := d.listenPacket("udp", "[::]:0")
		if err != nil {
			r.t.Skip(err)
		}
		defer conn.Close()
		reader, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			r.t.Fatal(err)
		}
		defer reader.Close()
		for _, size := range []int{65_507, 65_508, 65_527, 65_528} {
			n, err := conn.WriteTo(make([]byte, size), reader.LocalAddr())
			r.see(fmt.Sprint("written of ", size), n, err)
		}
		n, _, err := reader.ReadFrom(make([]byte, 1<<16))
		r.see("read", n, err)
	})
}

// A flood of which the kernel drops what does not fit: what comes is in its order and whole, and the socket goes on. How much the
// kernel keeps is its business.
func TestAFloodOfDatagramsIsDroppedAsOnPackageNet(t *testing.T) {
	const flood = 3000
	compareDoors(t, nil, func(r *recorder, d *door) {
		conn, err := d.listenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		r.see("buffer", conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(1))
		peer := dialUDP(r.t, conn.LocalAddr())
		sent := uint64(0)
		send := func(number int) {
			if _, err := peer.Write(append([]byte(fmt.Sprintf("%8d", number)), make([]byte, 1000)...)); err != nil {
				r.t.Fatal(err)
			}
			sent++
		}
		for number := range flood {
			send(number)
		}
		// What comes behind it is read at last, though the first of those may find no room either.
		came, ordered, whole := uint64(0), true, true
		memory := make([]byte, 2000)
		for last := -1; last < flood; {
			conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			n, _, err := conn.ReadFrom(memory)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				send(flood)
				continue
			}
			if err != nil {
				r.t.Fatal(err)
			}
			number, err := strconv.Atoi(strings.TrimSpace(string(memory[:8])))
			if err != nil {
				r.t.Fatal(err)
			}
			came++
			ordered, whole, last = ordered && number > last, whole && n == 1008, number
		}
		r.see("some are lost", came < sent)
		r.see("in their order", ordered)
		r.see("whole", whole)
		ours, is := conn.(*quoit.PacketConn)
		if !is {
			return
		}
		// Those that were sent at the end may be more than one.
		counters, err := ours.Counters()
		if err != nil || counters.Received < came || counters.KernelDrops == 0 || counters.Received+counters.KernelDrops > sent {
			r.t.Errorf("of %d datagrams %d were read, and %+v, %v", sent, came, counters, err)
		}
	})
}

// The calls of a net.UDPConn with control messages are not there.
func TestAPacketConnHasNoControlMessages(t *testing.T) {
	compareDoors(t, &difference{
		"control messages are the loop's: a DatagramHandler gets what is in them", map[string]string{"it has them true": "it has them false"},
	}, func(r *recorder, d *door) {
		conn, err := d.listenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		_, has := conn.(interface {
			ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
			WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)
		})
		r.see("it has them", has)
	})
}
