package quoit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// listeningFile is a socket that listens, as it is inherited.
func listeningFile(t *testing.T) (*os.File, net.Addr) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, listener.Addr()
}

// connectedFile is a socket that is connected to an address.
func connectedFile(t *testing.T, address net.Addr) *os.File {
	t.Helper()
	connection, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	file, err := connection.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// serveEcho answers with what comes until the listener is closed.
func serveEcho(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// It takes a copy, as package net does, and the socket stays open for others that have it.
func TestFileListener(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		file, address := listeningFile(t)
		for range 2 {
			listener, err := quoit.FileListener(file, engine, quiet())
			if err != nil {
				t.Fatal(err)
			}
			if listener.Addr().String() != address.String() {
				t.Errorf("%v, not %v", listener.Addr(), address)
			}
			go serveEcho(listener)
			roundTrip(t, dial(t, address), "hello")
			if err := listener.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Package net takes a socket that does not listen as well, and fails to accept.
func TestFileListenerNeedsAListeningSocket(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		file, address := listeningFile(t)
		connected := connectedFile(t, address)
		plain, err := os.CreateTemp(t.TempDir(), "plain")
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		for _, wrong := range []*os.File{connected, plain} {
			listener, err := quoit.FileListener(wrong, engine, quiet())
			if err == nil {
				_, err = listener.Accept()
				listener.Close()
			} else if operation := (*net.OpError)(nil); !errors.As(err, &operation) || operation.Op != "file" {
				t.Errorf("%v", err)
			}
			if err == nil {
				t.Errorf("%s is no listening socket", wrong.Name())
			}
		}
		// What was refused is the caller's still.
		if _, err := connected.Stat(); err != nil {
			t.Error(err)
		}
		listener, err := quoit.FileListener(file, engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	})
}

func TestFileListenerSaysWhatIsWrong(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		file, address := listeningFile(t)
		connected := connectedFile(t, address)
		_, err := quoit.FileListener(connected, engine, quiet())
		if err == nil || !strings.Contains(err.Error(), "the socket does not listen") {
			t.Errorf("%v", err)
		}
		file.Close()
		if _, err := quoit.FileListener(file, engine, quiet()); err == nil || !strings.Contains(err.Error(), "use of closed file") {
			t.Errorf("%v", err)
		}
	})
}

// What the loops have accepted when the listener stops is for who serves, and with several loops all the same.
func TestStopAcceptingLosesNobody(t *testing.T) {
	const clients = 100
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, loops := range []int{1, 3} {
			file, address := listeningFile(t)
			listener, err := quoit.FileListener(file, engine, quoit.WithLoops(loops), quiet())
			if err != nil {
				t.Fatal(err)
			}
			var all []net.Conn
			for range clients {
				all = append(all, dial(t, address))
			}
			listener.StopAccepting()
			listener.StopAccepting()
			next, err := quoit.FileListener(file, engine, quiet())
			if err != nil {
				t.Fatal(err)
			}
			go serveEcho(next)
			// It ends by itself, as nothing more comes.
			serveEcho(listener)
			for _, client := range all {
				roundTrip(t, client, "hello")
			}
			if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v", err)
			}
			for _, client := range all {
				client.Close()
			}
			// Package net's says that it is closed.
			if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			next.Close()
		}
	})
}
