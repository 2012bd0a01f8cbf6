package quoit_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// silentAddress is one to which a connect is neither answered nor refused: Linux drops what wants to connect to a
// listener whose queue is full (tcp_conn_request in net/ipv4/tcp_input.c).
func silentAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var shortened error
	if err := raw.Control(func(fd uintptr) { shortened = syscall.Listen(int(fd), 0) }); err != nil || shortened != nil {
		t.Fatal(err, shortened)
	}
	// A backlog of 0 queues one.
	first, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Close() })
	return listener.Addr().String()
}

func TestADialThatNobodyAnswersEndsWithItsContext(t *testing.T) {
	address := silentAddress(t)
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		dialer := newDialer(t, engine)
		soon, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err := dialer.DialContext(soon, "tcp", address)
		var failed *net.OpError
		if !errors.As(err, &failed) || !failed.Timeout() || failed.Op != "dial" {
			t.Errorf("a dial that takes too long ends with %v", err)
		}
		given, giveUp := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := dialer.DialContext(given, "tcp", address)
			ended <- err
		}()
		giveUp()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a dial that was given up ends with %v", err)
		}
	})
}

// A dialer that has as many connections as it may says what the limit is, and dials again when there is room.
func TestADialAtTheLimitOfConnections(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		dialer := newDialer(t, engine, quoit.WithConnections(1))
		first, err := dialer.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = dialer.Dial("tcp", listener.Addr().String())
		if !errors.Is(err, quoit.ErrLimit) || !strings.Contains(err.Error(), "WithConnections") {
			t.Error(err)
		}
		peer, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		peer.Close()
		first.Close()
		for end := time.Now().Add(patience); ; runtime.Gosched() {
			again, err := dialer.Dial("tcp", listener.Addr().String())
			if err == nil {
				again.Close()
				return
			}
			if !errors.Is(err, quoit.ErrLimit) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	})
}
