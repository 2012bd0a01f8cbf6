package quoit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

func TestWaitReadLeavesWhatThereIs(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		detached := make(chan *quoit.NetConn, 1)
		server := start(t, &handler{open: func(c *quoit.Conn) {
			n, err := c.Detach()
			if err != nil {
				t.Error(err)
			}
			detached <- n
		}}, engine)
		peer := dial(t, server.Addr())
		connection := <-detached

		connection.SetReadDeadline(time.Unix(1, 0))
		if err := connection.WaitRead(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past the deadline: %v", err)
		}
		connection.SetReadDeadline(time.Now().Add(patience))
		waited := make(chan error)
		go func() { waited <- connection.WaitRead() }()
		io.WriteString(peer, "ab")
		if err := <-waited; err != nil {
			t.Errorf("with bytes: %v", err)
		}
		for _, expected := range "ab" {
			var one [1]byte
			if err := connection.WaitRead(); err != nil {
				t.Errorf("with bytes: %v", err)
			}
			if n, err := connection.Read(one[:]); n != 1 || err != nil || rune(one[0]) != expected {
				t.Errorf("%d, %v, %q", n, err, one)
			}
		}
		peer.(*net.TCPConn).CloseWrite()
		if err := connection.WaitRead(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		connection.Close()
		if err := connection.WaitRead(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
