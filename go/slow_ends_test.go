package quoit_test

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// tiny makes the kernel's buffers small: for TCP not less than a few segments, as the kernel waits then before it sends.
func (e *ends) tiny() {
	bytes := 1
	if e.conn.LocalAddr().Network() == "tcp" {
		bytes = 128 << 10
	}
	for _, one := range []net.Conn{e.conn, e.peer} {
		buffers := one.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		})
		if err := errors.Join(buffers.SetReadBuffer(bytes), buffers.SetWriteBuffer(bytes)); err != nil {
			e.t.Fatal(err)
		}
	}
}

// reading reads all that comes, in parts of so many bytes, and tells how much that is and which.
func reading(from net.Conn, part int) <-chan came {
	all := make(chan came, 1)
	go func() {
		sum := crc32.NewIEEE()
		n, err := io.CopyBuffer(sum, struct{ io.Reader }{from}, make([]byte, part))
		all <- came{n, sum.Sum32(), err}
	}()
	return all
}

// came is what has come.
type came struct {
	bytes int64
	sum   uint32
	err   error
}

// begins makes a call of which the peer gets some bytes, but not all, as they do not fit: it is under way then.
func (e *ends) begins(write func() (int, error)) (ended <-chan error, written *int) {
	done := make(chan error, 1)
	written = new(int)
	go func() {
		n, err := write()
		*written = n
		done <- err
	}()
	if _, err := io.ReadFull(e.peer, make([]byte, started)); err != nil {
		e.t.Fatal(err)
	}
	return done, written
}

// started is how many bytes the peer reads of what is under way.
const started = 1000

// gets notes whether the peer has read as much as was written, but for what it has read before, and nothing else.
func (e *ends) gets(written int, rest came) {
	same := rest.bytes == int64(written-started) && rest.sum == crc32.ChecksumIEEE(noise()[started:written])
	e.see("the peer gets what was written", same, rest.err)
}

func (e *ends) writesNoise() (int, error) { return e.conn.Write(noise()) }

var slowLives = []life{
	{"a slow reader", false, nil, func(e *ends) {
		e.tiny()
		rest := reading(e.peer, 1000)
		n, err := e.conn.Write(noise()[:1<<20])
		e.see("written", n, err)
		e.see("close", e.conn.Close())
		all := receive(e.t, rest)
		e.see("the peer reads", all.bytes, all.sum, all.err)
	}},
	{"a slow reader here", false, nil, func(e *ends) {
		e.tiny()
		rest := reading(e.conn, 1000)
		n, err := e.peer.Write(noise()[:1<<20])
		e.see("the peer writes", n, err)
		e.see("and closes", e.peer.Close())
		all := receive(e.t, rest)
		e.see("read", all.bytes, all.sum, all.err)
	}},
	{"a slow writer", false, nil, func(e *ends) {
		e.tiny()
		rest := reading(e.peer, 1<<16)
		for at := range 3000 {
			if n, err := e.conn.Write(noise()[at : at+1]); n != 1 || err != nil {
				e.see("written", n, err)
			}
		}
		e.see("close", e.conn.Close())
		all := receive(e.t, rest)
		e.see("the peer reads", all.bytes, all.sum, all.err)
	}},
	{"a slow writer there", false, nil, func(e *ends) {
		e.tiny()
		rest := reading(e.conn, 1<<16)
		for at := range 3000 {
			if _, err := e.peer.Write(noise()[at : at+1]); err != nil {
				e.t.Fatal(err)
			}
		}
		e.peer.Close()
		all := receive(e.t, rest)
		e.see("read", all.bytes, all.sum, all.err)
	}},
	{"slow in both directions", false, nil, func(e *ends) {
		e.tiny()
		here, there := reading(e.conn, 777), reading(e.peer, 888)
		e.see("written", results(
			func() error { _, err := e.conn.Write(noise()[:1<<20]); return err },
			func() error { _, err := e.peer.Write(noise()[1<<20 : 2<<20]); return err },
		)...)
		e.see("close write", e.conn.(writeCloser).CloseWrite(), e.peer.(writeCloser).CloseWrite())
		for _, rest := range []<-chan came{here, there} {
			all := receive(e.t, rest)
			e.see("read", all.bytes, all.sum, all.err)
		}
	}},
	{"deadlines in the middle of a write", false, nil, func(e *ends) {
		e.tiny()
		at := 0
		for range 3 {
			done, written := e.begins(func() (int, error) { return e.conn.Write(noise()[at:]) })
			e.see("deadline", e.conn.SetWriteDeadline(time.Unix(1, 0)))
			e.see("a part", receive(e.t, done))
			at += *written
			n, err := e.conn.Write(noise()[at:])
			e.see("and no more", n, err)
			e.see("deadline", e.conn.SetWriteDeadline(time.Time{}))
		}
		rest := reading(e.peer, 1<<16)
		n, err := e.conn.Write(noise()[at:])
		e.see("the rest", n > 0 && at+n == len(noise()), err)
		e.see("close", e.conn.Close())
		all := receive(e.t, rest)
		same := all.bytes == int64(len(noise())-3*started) && all.sum == crc32.ChecksumIEEE(noise()[3*started:])
		e.see("the peer reads all, in order", same, all.err)
	}},
	{"a deadline that is set while a write waits", false, nil, func(e *ends) {
		e.tiny()
		done, written := e.begins(e.writesNoise)
		e.see("deadline", e.conn.SetWriteDeadline(time.Unix(1, 0)))
		e.see("the write", receive(e.t, done))
		e.see("a part", *written > 0 && *written < len(noise()))
		rest := reading(e.peer, 1<<16)
		e.see("close", e.conn.Close())
		e.gets(*written, receive(e.t, rest))
	}},
	{"deadlines in the middle of a read", false, nil, func(e *ends) {
		const text = "read in parts"
		var all bytes.Buffer
		for at := range text {
			e.conn.SetReadDeadline(time.Unix(1, 0))
			n, err := e.conn.Read(make([]byte, 10))
			e.see("nothing is due", n, err)
			e.conn.SetReadDeadline(time.Time{})
			io.WriteString(e.peer, text[at:at+1])
			_, err = io.CopyN(&all, struct{ io.Reader }{e.conn}, 1)
			if err != nil {
				e.see("read", err)
			}
		}
		e.see("all", all.String())
	}},
	{"close while a write waits, and what the peer gets", false, nil, func(e *ends) {
		e.tiny()
		done, written := e.begins(e.writesNoise)
		e.see("close", e.conn.Close())
		e.see("the write", receive(e.t, done))
		e.see("a part", *written > 0 && *written < len(noise()))
		e.gets(*written, receive(e.t, reading(e.peer, 1<<16)))
	}},
	{"the direction ends while a write waits", false, nil, func(e *ends) {
		e.tiny()
		done, written := e.begins(e.writesNoise)
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		rest := reading(e.peer, 1<<16) // package net's write to a Unix socket waits for that
		e.see("the write", receive(e.t, done))
		e.see("a part", *written > 0 && *written < len(noise()))
		e.gets(*written, receive(e.t, rest))
		io.WriteString(e.peer, "back")
		e.read()
		e.see("close", e.conn.Close())
	}},
	{"the peer closes while a write waits", false, nil, func(e *ends) {
		e.tiny()
		done, written := e.begins(e.writesNoise)
		e.peer.Close()
		e.see("the write", receive(e.t, done))
		e.see("a part", *written > 0 && *written < len(noise()))
		e.see("close", e.conn.Close())
	}},
	{"the peer ends its direction while a write waits", false, nil, func(e *ends) {
		e.tiny()
		done, written := e.begins(e.writesNoise)
		e.peer.(writeCloser).CloseWrite()
		e.read()
		rest := reading(e.peer, 1<<16)
		e.see("the write", receive(e.t, done))
		e.see("close", e.conn.Close())
		e.gets(*written, receive(e.t, rest))
	}},
	{"close behind a write of which the peer has read little", false, nil, func(e *ends) {
		e.tiny()
		e.fillUp()
		e.see("close", e.conn.Close())
		e.read()
		e.peerReadsSomething()
	}},
	{"a reset behind a write of which the peer has read little", true, nil, func(e *ends) {
		e.tiny()
		done, _ := e.begins(e.writesNoise)
		e.see("close", e.resetsItself())
		e.see("the write", receive(e.t, done))
		_, err := io.Copy(io.Discard, struct{ io.Reader }{e.peer})
		e.see("the peer sees", err)
	}},
	{"two writes wait", false, nil, func(e *ends) {
		e.tiny()
		first, written := e.begins(e.writesNoise)
		second := make(chan error, 1)
		go func() {
			_, err := e.conn.Write([]byte("behind it"))
			second <- err
		}()
		rest := reading(e.peer, 1<<16)
		e.see("the first", receive(e.t, first))
		e.see("the second", receive(e.t, second))
		e.see("close", e.conn.Close())
		all := receive(e.t, rest)
		e.see("in their order", *written, all.bytes, all.sum, all.err)
	}},
	{"close while two writes wait", false, nil, func(e *ends) {
		e.tiny()
		first, written := e.begins(e.writesNoise)
		second := make(chan error, 1)
		go func() {
			_, err := e.conn.Write([]byte("behind it"))
			second <- err
		}()
		e.see("close", e.conn.Close())
		e.see("the first", receive(e.t, first))
		e.see("the second", receive(e.t, second))
		e.gets(*written, receive(e.t, reading(e.peer, 1<<16)))
	}},
	{"copies from a slow reader to a slow writer", false, nil, func(e *ends) {
		e.tiny()
		from, to, err := os.Pipe()
		if err != nil {
			e.t.Fatal(err)
		}
		defer from.Close()
		go func() {
			to.Write(noise()[:1<<19])
			to.Close()
		}()
		rest := reading(e.peer, 1000)
		n, err := io.Copy(e.conn, from)
		e.see("copied", n, err)
		e.see("close", e.conn.Close())
		all := receive(e.t, rest)
		e.see("the peer reads", all.bytes, all.sum, all.err)
	}},
}

// peerReadsSomething notes that the peer gets more than nothing, and then an end: how much fits, and so is sent, is the kernel's.
func (e *ends) peerReadsSomething() {
	n, err := io.Copy(io.Discard, struct{ io.Reader }{e.peer})
	e.see("the peer reads", n > 0, err)
}

// What slow readers and writers get is as on package net.
func TestSlowEndsAreAsOnPackageNet(t *testing.T) { compareLives(t, slowLives) }
