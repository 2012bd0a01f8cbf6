package quoit_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// ends is what a program sees of one connection, from its server's end and from the peer's.
type ends struct {
	t     *testing.T
	conn  net.Conn // under test
	peer  net.Conn // package net's
	trace []string
}

func (e *ends) see(what string, result ...any) {
	text := what
	for _, one := range result {
		if err, isError := one.(error); isError {
			text += " " + kind(err)
		} else if one != nil {
			text += fmt.Sprint(" ", one)
		} else {
			text += " nil"
		}
	}
	e.trace = append(e.trace, text)
}

// kind is what code can tell an error by.
func kind(err error) string {
	text := fmt.Sprintf("%T", err)
	var op *net.OpError
	if errors.As(err, &op) {
		text += fmt.Sprintf("{%s %s source %t address %t}", op.Op, op.Net, op.Source != nil, op.Addr != nil)
	}
	for _, one := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded} {
		if errors.Is(err, one) {
			text += " " + one.Error()
		}
	}
	// Which of the two it is depends on whether somebody has heard of the reset before.
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		text += " broken"
	}
	var timeout net.Error
	if errors.As(err, &timeout) {
		text += fmt.Sprint(" timeout ", timeout.Timeout())
	}
	return text
}

func (e *ends) read() {
	n, err := e.conn.Read(make([]byte, 100))
	e.see("read", n, err)
}

func (e *ends) write(text string) {
	n, err := e.conn.Write([]byte(text))
	e.see("write", n, err)
}

// peerReads tells all that comes to the peer, and how it ends.
func (e *ends) peerReads() {
	all, err := io.ReadAll(e.peer)
	if err != nil {
		err = fmt.Errorf("%w", err) // whichever way package net wraps it
	}
	e.see("the peer reads "+fmt.Sprint(len(all)), err)
}

// fillUp writes until nothing more is taken.
func (e *ends) fillUp() {
	e.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		if _, err := e.conn.Write(make([]byte, 1<<20)); err != nil {
			e.see("a write that waits", err)
			break
		}
	}
	e.conn.SetWriteDeadline(time.Time{})
}

func (e *ends) resets() {
	e.peer.(*net.TCPConn).SetLinger(0)
	e.peer.Close()
}

// waits runs a call that waits, makes it end, and tells how.
func (e *ends) waits(what string, call func() (int, error), ending func()) {
	done := make(chan error, 1)
	go func() {
		_, err := call()
		done <- err
	}()
	ending()
	e.see(what, receive(e.t, done))
}

type writeCloser interface{ CloseWrite() error }

// scenarios are lives of a connection.
var scenarios = []struct {
	name    string
	onlyTCP bool
	differs string // why ours is another, if it is
	run     func(e *ends)
}{
	{"the peer ends", false, "", func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.peer.Close()
		for range 3 {
			e.read()
		}
		e.see("close", e.conn.Close())
	}},
	{"the peer ends its direction", false, "", func(e *ends) {
		e.peer.(writeCloser).CloseWrite()
		e.read()
		e.write("still")
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"the peer resets", true, "a read behind the one that told of it tells it again, where an end would pass for all", func(e *ends) {
		e.resets()
		e.read()
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"the peer resets behind data", true, "", func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.read()
		e.resets()
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"the peer resets while a write waits", true, "", func(e *ends) {
		e.fillUp()
		e.waits("the write", func() (int, error) { return e.conn.Write(make([]byte, 1<<20)) }, e.resets)
		e.see("close", e.conn.Close())
	}},
	{"close, and again", false, "", func(e *ends) {
		e.see("close", e.conn.Close())
		e.see("close", e.conn.Close())
		e.read()
		e.write("x")
		e.see("deadline", e.conn.SetDeadline(time.Now()))
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.peerReads()
	}},
	{"close while a read waits", false, "", func(e *ends) {
		e.waits("the read", func() (int, error) { return e.conn.Read(make([]byte, 1)) }, func() { e.conn.Close() })
		e.peerReads()
	}},
	{"close while a write waits", false, "", func(e *ends) {
		e.fillUp()
		e.waits("the write", func() (int, error) { return e.conn.Write(make([]byte, 1<<20)) }, func() { e.conn.Close() })
	}},
	{"close behind a write", false, "", func(e *ends) {
		e.write(strings.Repeat("x", 5000))
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"close with unread data", true, "what was written still arrives, where a reset may overtake it", func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.read()
		io.WriteString(e.peer, "unread")
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"close write", false, "", func(e *ends) {
		e.write("all")
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.write("more")
		e.peerReads()
		io.WriteString(e.peer, "back")
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"deadlines", false, "", func(e *ends) {
		e.see("deadline", e.conn.SetReadDeadline(time.Now().Add(-time.Second)))
		e.read()
		io.WriteString(e.peer, "abc")
		e.read()
		e.see("deadline", e.conn.SetReadDeadline(time.Time{}))
		e.read()
		e.see("deadline", e.conn.SetWriteDeadline(time.Now().Add(-time.Second)))
		e.write("x")
		e.see("deadline", e.conn.SetWriteDeadline(time.Time{}))
		e.write("x")
		e.waits("the read", func() (int, error) { return e.conn.Read(make([]byte, 1)) }, func() {
			e.conn.SetDeadline(time.Now())
		})
		e.see("close", e.conn.Close())
	}},
	{"nothing to read or write", false, "", func(e *ends) {
		n, err := e.conn.Read(nil)
		e.see("read", n, err)
		n, err = e.conn.Write(nil)
		e.see("write", n, err)
		e.see("close", e.conn.Close())
		n, err = e.conn.Read(nil)
		e.see("read", n, err)
	}},
}

// What a program sees where a connection ends is the same on package net, which comes first, and on each engine.
func TestConnectionsEndAsThoseOfPackageNet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		address := func(t *testing.T) string {
			if network == "unix" {
				return filepath.Join(t.TempDir(), "socket")
			}
			return "127.0.0.1:0"
		}
		trace := func(t *testing.T, l net.Listener, err error, run func(*ends)) []string {
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			e := &ends{t: t, peer: dial(t, l.Addr())}
			if e.conn, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			run(e)
			return e.trace
		}
		for _, scenario := range scenarios {
			if scenario.onlyTCP && network != "tcp" {
				continue
			}
			t.Run(network+"/"+scenario.name, func(t *testing.T) {
				l, err := net.Listen(network, address(t))
				stock := trace(t, l, err, scenario.run)
				onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
					l, err := quoit.Listen(network, address(t), engine, quiet())
					ours := trace(t, l, err, scenario.run)
					if same := slices.Equal(stock, ours); same && scenario.differs != "" {
						t.Errorf("it differs no more: %q", ours)
					} else if !same && scenario.differs == "" {
						t.Errorf("package net: %q\nours:        %q", stock, ours)
					}
				})
			})
		}
	}
}
