//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package quoit

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// A peer that reads gets all that was written before Close, however long that takes: the limit is for one that does not. What
// is tried here is a limit that comes while the queue in Go still waits for the library to have room.
func TestACloseWaitsForWhoReadsHoweverSlowly(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		l, err := Listen("tcp", "127.0.0.1:0", OnLoops(loops))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		peer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		n := accepted.(*NetConn)
		n.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		for err = nil; err == nil; _, err = n.Write(make([]byte, 1<<20)) {
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		loop := loops.loops[0].(*nativeLoop)
		c := n.conn
		on := func(f func()) {
			t.Helper()
			if !loop.call(f) {
				t.Fatal("the loop has ended")
			}
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
