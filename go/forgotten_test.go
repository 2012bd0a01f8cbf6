package quoit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// acceptAnd accepts one connection and does something with it, with which the program forgets it. No frame of the caller's
// refers to it.
//
//go:noinline
func acceptAnd(t *testing.T, l net.Listener, do func(c net.Conn)) {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	do(c)
}

// A connection that was forgotten is closed when the collector finds it: on package net, which has a finalizer, and here.
func TestAForgottenConnectionIsClosed(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		l := listen(t, engine)
		for _, do := range map[string]func(net.Conn){
			"untouched": func(net.Conn) {},
			"after a deadline": func(c net.Conn) {
				c.SetDeadline(time.Now().Add(time.Hour))
				c.Write([]byte("x"))
			},
		} {
			client := dial(t, l.Addr())
			acceptAnd(t, l, do)
			var err error
			for deadline := time.Now().Add(patience); ; {
				runtime.GC()
				client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if _, err = io.Copy(io.Discard, client); !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
					break
				}
			}
			if err != nil {
				t.Error("its peer sees no end:", err)
			}
		}
	})
}

// Who waits for a connection has not forgotten it, though nothing but the call refers to it.
func TestAConnectionThatSomebodyWaitsForIsNotForgotten(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		l := listen(t, engine)
		client := dial(t, l.Addr())
		came := make(chan error, 1)
		acceptAnd(t, l, func(c net.Conn) {
			go func() {
				_, err := c.Read(make([]byte, 1))
				came <- err
			}()
		})
		for range 5 {
			runtime.GC()
			runtime.Gosched()
		}
		client.Write([]byte("x"))
		if err := <-came; err != nil {
			t.Error(err)
		}
	})
}

// A file of a connection is another descriptor of its socket, for other processes.
func TestAFileOfAConnectionIsItsSocket(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		l := listen(t, engine)
		client := dial(t, l.Addr())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		file, err := c.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		// What net.FileConn makes of it is the same connection.
		other, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		if other.RemoteAddr().String() != client.LocalAddr().String() {
			t.Error(other.RemoteAddr(), client.LocalAddr())
		}
		io.WriteString(other, "by another way")
		other.Close()
		file.Close()
		got := make([]byte, len("by another way"))
		if _, err := io.ReadFull(client, got); err != nil {
			t.Error(err)
		}
		// The connection goes on.
		roundTripBetween(t, client, c)
		c.Close()
		if _, err := c.(interface{ File() (*os.File, error) }).File(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// roundTripBetween sends something each way.
func roundTripBetween(t *testing.T, one, other net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{one, other}, {other, one}} {
		io.WriteString(ends[0], "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(ends[1], got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
