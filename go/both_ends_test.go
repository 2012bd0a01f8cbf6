package quoit_test

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// atOnce runs functions at the same time, and waits for them.
func atOnce(functions ...func()) {
	var group sync.WaitGroup
	begin := make(chan struct{})
	for _, one := range functions {
		group.Go(func() {
			<-begin
			one()
		})
	}
	close(begin)
	group.Wait()
}

// results is what functions have returned that ran at the same time.
func results(functions ...func() error) []any {
	errors := make([]any, len(functions))
	var all []func()
	for index, one := range functions {
		all = append(all, func() {
			if err := one(); err != nil {
				errors[index] = err
			}
		})
	}
	atOnce(all...)
	return errors
}

// resetsItself ends the connection under test with a reset.
func (e *ends) resetsItself() error {
	e.conn.(interface{ SetLinger(int) error }).SetLinger(0)
	return e.conn.Close()
}

// failsToWrite writes until that fails: a reset by the peer needs no answer, and so may be noticed a little later.
func (e *ends) failsToWrite() {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := e.conn.Write([]byte("x")); err != nil {
			e.see("a later write", err)
			return
		}
	}
	e.see("no write fails")
}

// isOver waits until a loop, if there is one, knows that the connection is over.
func (e *ends) isOver() {
	ours, is := e.listener.(*quoit.Listener)
	for end := time.Now().Add(patience); is && ours.Loops().Counters()[0].Get("connections") > 0; runtime.Gosched() {
		if time.Now().After(end) {
			e.t.Fatal("the connection does not end")
		}
	}
}

// calls notes what is asked of a connection that has no bytes to move any more.
func (e *ends) calls() {
	e.see("addresses", e.conn.LocalAddr() != nil, e.conn.RemoteAddr() != nil)
	e.see("deadline", e.conn.SetDeadline(time.Now().Add(patience)))
	buffers := e.conn.(interface {
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	})
	e.see("buffers", buffers.SetReadBuffer(1<<16), buffers.SetWriteBuffer(1<<16))
	if stream, is := e.conn.(interface {
		SetNoDelay(bool) error
		SetKeepAlive(bool) error
		SetKeepAlivePeriod(time.Duration) error
		SetLinger(int) error
	}); is && e.conn.LocalAddr().Network() == "tcp" {
		e.see("options", stream.SetNoDelay(true), stream.SetKeepAlive(true), stream.SetKeepAlivePeriod(time.Second), stream.SetLinger(0))
	}
	raw, err := e.conn.(syscall.Conn).SyscallConn()
	e.see("raw connection", err)
	e.see("control", raw.Control(func(uintptr) { e.see("it runs") }))
	file, err := e.conn.(interface{ File() (*os.File, error) }).File()
	e.see("file", file != nil, err)
	if file != nil {
		file.Close()
	}
}

// descriptorGone is what differs where the loop has closed the socket, as nothing can come or leave any more.
var descriptorGone = &difference{"no descriptor is kept for what is over", map[string]string{
	"it runs":       "",
	"control nil":   "control *net.OpError{raw-control tcp source false address true} use of closed network connection timeout false",
	"file true nil": "file false *net.OpError{file tcp source true address true} use of closed network connection timeout false",
}}

var livesOfBothEnds = []life{
	{"both close at once", false, nil, func(e *ends) {
		e.see("close", results(e.conn.Close, e.peer.Close)...)
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"both close at once, with bytes on the way", false, nil, func(e *ends) {
		atOnce(func() { e.conn.Write(make([]byte, 5000)) }, func() { e.peer.Write(make([]byte, 5000)) })
		e.see("close", results(e.conn.Close, e.peer.Close)...)
		e.read()
		e.write("x")
	}},
	{"both end their directions at once", false, nil, func(e *ends) {
		e.see("close write", results(e.conn.(writeCloser).CloseWrite, e.peer.(writeCloser).CloseWrite)...)
		e.peerReads()
		e.read()
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
		e.read()
	}},
	{"both end their directions at once, behind much", false, nil, func(e *ends) {
		const much = 1 << 20
		ends := func(c net.Conn) func() error {
			return func() error {
				if _, err := c.Write(make([]byte, much)); err != nil {
					return err
				}
				return c.(writeCloser).CloseWrite()
			}
		}
		all := func(c net.Conn, came *int64) func() error {
			return func() (err error) {
				*came, err = io.Copy(io.Discard, c)
				return err
			}
		}
		var here, there int64
		e.see("at once", results(ends(e.conn), ends(e.peer), all(e.conn, &here), all(e.peer, &there))...)
		e.see("came", here, there)
		e.see("close", e.conn.Close())
	}},
	{"calls when both directions have ended", false, descriptorGone, func(e *ends) {
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.peerReads()
		e.see("the peer's", e.peer.(writeCloser).CloseWrite())
		e.read()
		e.isOver()
		e.calls()
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"calls when the peer has reset", true, descriptorGone, func(e *ends) {
		e.resets()
		e.read()
		e.isOver()
		e.calls()
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.see("close", e.conn.Close())
	}},
	{"the peer resets while this end closes", true, nil, func(e *ends) {
		e.see("close", results(e.conn.Close, func() error { e.resets(); return nil })...)
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"this end resets while the peer closes", true, nil, func(e *ends) {
		e.see("close", results(e.resetsItself, e.peer.Close)...)
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"both reset at once", true, nil, func(e *ends) {
		e.see("close", results(e.resetsItself, func() error { e.resets(); return nil })...)
		e.read()
		e.write("x")
	}},
	{"this end resets, and the peer has ended its direction", true, nil, func(e *ends) {
		e.see("the peer's", e.peer.(writeCloser).CloseWrite())
		e.read()
		e.write("lost, or not")
		e.see("close", e.resetsItself())
		_, err := io.Copy(io.Discard, struct{ io.Reader }{e.peer})
		e.see("the peer sees", err)
	}},
	{"this end resets, and has ended its direction", true, nil, func(e *ends) {
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.peerReads()
		e.see("close", e.resetsItself())
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := e.peer.Write([]byte("x")); err != nil {
				e.see("the peer writes", err)
				break
			}
		}
	}},
	{"the peer resets behind its end", true, nil, func(e *ends) {
		e.see("the peer's", e.peer.(writeCloser).CloseWrite())
		e.read()
		e.resets()
		e.failsToWrite()
		e.see("close", e.conn.Close())
	}},
	{"the peer resets behind this end's end", true, nil, func(e *ends) {
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		e.peerReads()
		e.resets()
		e.read()
		e.write("x")
		e.see("close", e.conn.Close())
	}},
	{"the peer resets while a read waits", true, nil, func(e *ends) {
		e.waits("the read", func() (int, error) { return e.conn.Read(make([]byte, 1)) }, e.resets)
		e.see("close", e.conn.Close())
	}},
	{"the peer closes with unread bytes while a read waits", true, nil, func(e *ends) {
		e.write(strings.Repeat("x", 5000))
		io.ReadFull(e.peer, make([]byte, 1)) // it has come
		e.waits("the read", func() (int, error) { return e.conn.Read(make([]byte, 1)) }, func() { e.peer.Close() })
		e.see("close", e.conn.Close())
	}},
}

// What a program sees where both ends act is as on package net.
func TestBothEndsActAsOnPackageNet(t *testing.T) { compareLives(t, livesOfBothEnds) }
