package quoit_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// replies is how many datagrams the response to a request has.
func replies(request uint32) uint32 { return 1 + request%3 }

// respondInDatagrams sends what each request asks for, each datagram with the next number.
func respondInDatagrams(conn net.PacketConn) error {
	request := make([]byte, 16)
	// As of a buffer in a structure, beside a pointer.
	reply := &struct {
		bytes  [4]byte
		beside *[]byte
	}{beside: &request}
	for number := uint32(0); ; {
		n, from, err := conn.ReadFrom(request)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		for range replies(binary.BigEndian.Uint32(request)) {
			binary.BigEndian.PutUint32(reply.bytes[:], number)
			if _, err := conn.WriteTo(reply.bytes[:], from); err != nil {
				return fmt.Errorf("datagram %d: %w", number, err)
			}
			number++
		}
	}
}

// askForDatagrams sends requests, at first one by one and later some at once, until it is enough. It returns what is not as it
// should be: every datagram comes, in its order.
func askForDatagrams(conn net.Conn, enough func(requests uint32) bool) error {
	const together = 8
	reply, expected, request := make([]byte, 16), uint32(0), uint32(0)
	for !enough(request) {
		first := request
		for request == first || request%32 > 32-together {
			if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, request)); err != nil {
				return err
			}
			request++
		}
		for ; first < request; first++ {
			for range replies(first) {
				if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
					return err
				}
				n, err := conn.Read(reply)
				if err != nil {
					return fmt.Errorf("waiting for datagram %d: %w", expected, err)
				}
				if got := binary.BigEndian.Uint32(reply); n != 4 || got != expected {
					return fmt.Errorf("in place of datagram %d came %d, of %d bytes", expected, got, n)
				}
				expected++
			}
		}
	}
	_, err := conn.Write(nil)
	return err
}

// serveDatagrams has one end respond and the other ask.
func serveDatagrams(t *testing.T, conn net.PacketConn, client net.Conn, enough func(requests uint32) bool) {
	t.Helper()
	responded := make(chan error, 1)
	go func() { responded <- respondInDatagrams(conn) }()
	if err := askForDatagrams(client, enough); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, responded); err != nil {
		t.Fatal(err)
	}
}

// What a goroutine sends leaves by itself while the loop sleeps, and through the loop otherwise; who reads must not see which.
func TestDatagramsComeWhoeverSendsThem(t *testing.T) {
	hundred := func(requests uint32) bool { return requests >= 100 }
	t.Run("package net", func(t *testing.T) {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		serveDatagrams(t, conn, dial(t, conn.LocalAddr()), hundred)
	})
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conn, err := quoit.ListenPacket("udp", "127.0.0.1:0", engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		serveDatagrams(t, conn, dial(t, conn.LocalAddr()), func(requests uint32) bool {
			if conn.Loops().Engine() == quoit.EngineStd {
				return hundred(requests)
			}
			found, err := conn.Counters()
			// Both kinds, and some of each: that depends on how the threads run.
			return err != nil || hundred(requests) && found.DirectSends >= 20 && found.Sends >= found.DirectSends+20
		})
	})
}
