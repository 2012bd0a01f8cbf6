package quoit_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// ends is what a program sees of one connection, from its server's end and from the peer's.
type ends struct {
	recorder
	conn     net.Conn     // under test
	peer     net.Conn     // package net's
	listener net.Listener // of conn
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
	for {
		e.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := e.conn.Write(make([]byte, 1<<20)); n == 0 && err != nil {
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

type writeCloser interface{ CloseWrite() error }

// life is one of a connection.
type life struct {
	name    string
	onlyTCP bool
	differs *difference
	run     func(e *ends)
}

var lives = []life{
	{"the peer ends", false, nil, func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.peer.Close()
		for range 3 {
			e.read()
		}
		e.see("close", e.conn.Close())
	}},
	{"the peer ends its direction", false, nil, func(e *ends) {
		e.peer.(writeCloser).CloseWrite()
		e.read()
		e.write("still")
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"the peer resets", true, &difference{"a read behind the one that told of it tells it again, where an end would pass for all", map[string]string{
		"read 0 *errors.errorString EOF": "read 0 *net.OpError{read tcp source true address true} of read broken timeout false",
	}}, func(e *ends) {
		e.resets()
		e.read()
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"the peer resets behind data", true, nil, func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.read()
		e.resets()
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"the peer resets while a write waits", true, nil, func(e *ends) {
		e.fillUp()
		e.waits("the write", func() (int, error) { return e.conn.Write(make([]byte, 1<<20)) }, e.resets)
		e.see("close", e.conn.Close())
	}},
	{"close, and again", false, nil, func(e *ends) {
		e.see("close", e.conn.Close())
		e.see("close", e.conn.Close())
		e.read()
		e.write("x")
		e.see("deadline", e.conn.SetDeadline(time.Now()))
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.peerReads()
	}},
	{"options of a closed one", false, nil, func(e *ends) {
		e.see("close", e.conn.Close())
		buffers := e.conn.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		})
		e.see("buffers", buffers.SetReadBuffer(1<<16), buffers.SetWriteBuffer(1<<16))
		file, err := e.conn.(interface{ File() (*os.File, error) }).File()
		e.see("file", file == nil, err)
		raw, err := e.conn.(syscall.Conn).SyscallConn()
		e.see("raw connection", err)
		e.see("control", raw.Control(func(uintptr) { e.see("it runs") }))
		if stream, is := e.conn.(interface {
			SetNoDelay(bool) error
			SetKeepAlive(bool) error
			SetKeepAlivePeriod(time.Duration) error
			SetLinger(int) error
		}); is && e.conn.LocalAddr().Network() == "tcp" {
			e.see("options", stream.SetNoDelay(true), stream.SetKeepAlive(true), stream.SetKeepAlivePeriod(time.Second), stream.SetLinger(0))
		}
	}},
	{"raw calls", true, &difference{
		"it is the loop that waits for the socket", map[string]string{
			"read nil":  "read *net.OpError{raw-read tcp source false address true} unsupported operation timeout false",
			"write nil": "write *net.OpError{raw-write tcp source false address true} unsupported operation timeout false",
		},
	}, func(e *ends) {
		raw, err := e.conn.(syscall.Conn).SyscallConn()
		e.see("raw connection", err)
		e.see("control", raw.Control(func(uintptr) { e.see("it runs") }))
		e.see("read", raw.Read(func(uintptr) bool { return true }))
		e.see("write", raw.Write(func(uintptr) bool { return true }))
	}},
	{"close while a read waits", false, nil, func(e *ends) {
		e.waits("the read", func() (int, error) { return e.conn.Read(make([]byte, 1)) }, func() { e.conn.Close() })
		e.peerReads()
	}},
	{"close while a write waits", false, nil, func(e *ends) {
		e.fillUp()
		e.waits("the write", func() (int, error) { return e.conn.Write(make([]byte, 1<<20)) }, func() { e.conn.Close() })
	}},
	{"close behind a write", false, nil, func(e *ends) {
		e.write(strings.Repeat("x", 5000))
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"close with unread data", true, &difference{"what was written still arrives, where a reset may overtake it", map[string]string{
		"the peer reads 0 *fmt.wrapError{read tcp source true address true} of read broken timeout false": "the peer reads 0 nil",
	}}, func(e *ends) {
		io.WriteString(e.peer, "abc")
		e.read()
		io.WriteString(e.peer, "unread")
		e.see("close", e.conn.Close())
		e.peerReads()
	}},
	{"close write", false, nil, func(e *ends) {
		e.write("all")
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.write("more")
		e.peerReads()
		io.WriteString(e.peer, "back")
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"deadlines", false, nil, func(e *ends) {
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
	{"nothing to read or write", false, nil, func(e *ends) {
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
func TestConnectionsEndAsThoseOfPackageNet(t *testing.T) { compareLives(t, lives) }

func compareLives(t *testing.T, lives []life) {
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
			e := &ends{recorder: recorder{t: t}, peer: dial(t, l.Addr()), listener: l}
			if e.conn, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.conn.Close() })
			run(e)
			return e.trace
		}
		for _, life := range lives {
			if life.onlyTCP && network != "tcp" {
				continue
			}
			t.Run(network+"/"+life.name, func(t *testing.T) {
				l, err := net.Listen(network, address(t))
				stock := trace(t, l, err, life.run)
				onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
					l, err := quoit.Listen(network, address(t), engine, quiet())
					compare(t, stock, trace(t, l, err, life.run), life.differs.on(network))
				})
			})
		}
	}
}

// What the kernel had received before a reset is still delivered, as by package net: also of a connection that was paused by then,
// as nobody read what had come before.
func TestAResetBehindMuchThatNobodyReads(t *testing.T) {
	const much = 40_000 // no more than the kernel takes before anything is read
	trace := func(t *testing.T, l net.Listener, err error, writesFirst bool) []string {
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		e := &ends{recorder: recorder{t: t}, peer: dial(t, l.Addr())}
		if e.conn, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		defer e.conn.Close()
		for range 10 {
			if _, err := e.peer.Write(make([]byte, much/10)); err != nil {
				t.Fatal(err)
			}
		}
		e.resets()
		if writesFirst {
			e.failsToWrite()
			e.write("once more")
		}
		all, err := io.ReadAll(e.conn)
		e.see("read", len(all), err)
		return e.trace
	}
	for name, writesFirst := range map[string]bool{"read": false, "written to, and then read": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			stock := trace(t, l, err, writesFirst)
			onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
				l, err := quoit.Listen("tcp", "127.0.0.1:0", engine, quiet(), quoit.WithInboundLimit(1000), quoit.WithReceivePool(4, 1024))
				compare(t, stock, trace(t, l, err, writesFirst), nil)
			})
		})
	}
}
