//go:build linux && (cgo || quoit_nocgo) && !quoit_std && (amd64 || arm64)

package quoit

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// takesMore is whether the kernel has room for more of what is written to a socket.
func takesMore(t *testing.T, socket int) bool {
	t.Helper()
	const writable = 4 // POLLOUT (poll(2))
	poll := struct {
		socket          int32
		events, results int16
	}{int32(socket), writable, 0}
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1,
			uintptr(unsafe.Pointer(&syscall.Timespec{})), 0, 0, 0)
		switch errno {
		case 0:
			return poll.results&writable != 0
		case syscall.EINTR:
		default:
			t.Error(errno)
			return false
		}
	}
}

// A peer that reads gets all that was written before Close, however long that takes: the limit is for one that does not. What
// is tried here is a limit that comes while the queue in Go still waits for the library to have room.
func TestACloseWaitsForWhoReadsHoweverSlowly(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		l, err := Listen("tcp", "127.0.0.1:0", OnLoops(loops))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		// So that what is on the way makes no room for more, and that some of what is read below has made room.
		dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			var set error
			failure := raw.Control(func(socket uintptr) {
				set = syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10)
			})
			return errors.Join(failure, set)
		}}
		peer, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		n := accepted.(*NetConn)
		loop := loops.loops[0].(*nativeLoop)
		c := n.conn
		on := func(f func()) {
			t.Helper()
			if !loop.call(f) {
				t.Fatal("the loop has ended")
			}
		}
		go func() {
			for err := error(nil); err == nil; _, err = n.Write(make([]byte, 1<<20)) {
			}
		}()
		// The library has refused some of it, and what the library has finds no room in the kernel.
		for stuck := false; !stuck; runtime.Gosched() {
			on(func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				stuck = c.out.blocked && !takesMore(t, loop.library.ConnectionFD(c.id))
			})
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		var before int64
		on(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.out.empty() {
				t.Error("all that was written is with the library")
			}
			before = c.looked
		})
		io.ReadFull(peer, make([]byte, 64<<10))
		for now, deadline := before, time.Now().Add(forPatience); now == before; {
			if time.Now().After(deadline) {
				t.Fatal("the peer has read, and nothing tells")
			}
			on(func() { now = loop.library.TakenByPeer(c.id) })
			runtime.Gosched()
		}
		// The limit is due, and since it was set the peer has taken something, or not.
		due := func(hasTaken bool) (state connState, again bool) {
			on(func() {
				c.mu.Lock()
				now := time.Now()
				c.deadline, c.closeBy, c.looked = now, now, loop.library.TakenByPeer(c.id)
				if hasTaken {
					c.looked = before
				}
				c.mu.Unlock()
				loop.deadline(c)
				c.mu.Lock()
				defer c.mu.Unlock()
				state, again = c.state, c.deadline.After(now)
			})
			return state, again
		}
		if state, again := due(true); state != stateClosing || !again {
			t.Fatalf("a reader was cut: state %d", state)
		}
		if state, again := due(false); state == stateClosing || again {
			t.Error("one that does not read is waited for")
		}
		peer.SetDeadline(time.Now().Add(forPatience))
		if _, err := io.Copy(io.Discard, peer); err == nil || errors.Is(err, io.EOF) {
			t.Error("the end passes for all there is:", err)
		}
	})
}

// A deadline may pass in the turn in which its connection is closed.
func TestADeadlineIsForgottenInTheTurnOfAnEnd(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		loop := loops.loops[0].(*nativeLoop)
		for state, end := range map[connState]func(*Conn) error{stateClosing: (*Conn).Close, stateClosed: (*Conn).Abort} {
			n, _ := accepted(t, loops)
			loop.call(func() {
				c := n.conn
				to := &told{sink: c.sink}
				c.sink = to
				if err := errors.Join(c.SetDeadline(time.Now()), end(c)); err != nil {
					t.Error(err)
				}
				loop.deadline(c)
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.state != state || len(to.of) > 0 {
					t.Errorf("state %d became %d, and there were told %v", state, c.state, to.of)
				}
			})
		}
	})
}
