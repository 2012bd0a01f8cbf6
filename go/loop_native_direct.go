//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import "github.com/quoit-io/quoit/go/internal/native"

// sendNow implements home. What a loop that is awake is given leaves with the rest of its turn; one that sleeps would be woken to
// send, and fall asleep again.
func (l *nativeLoop) sendNow(c *Conn, p []byte) int {
	if c.direct == nil {
		// Not before something was written: many connections are only read.
		c.requests |= requestDirect
		return 0
	}
	// Only what the library has been given is known to it. What the last commands asked for it may not have been given yet.
	if !l.asleep.Load() || !c.out.empty() || c.files.waits() || c.files.token != 0 {
		return 0
	}
	return c.direct.TrySend(p)
}

// letSendDirectly lets other goroutines send on the connection while the loop sleeps. Its lock is held.
func (l *nativeLoop) letSendDirectly(c *Conn) {
	if c.direct != nil || c.state != stateOpen {
		return
	}
	// It fails for a connection that is about to end.
	if sender, ok := l.library.DirectSender(native.ID(c.id)); ok {
		c.direct = sender
	}
}

// sendNow sends a datagram at once, if the loop sleeps and nothing is before it. The lock is held. name is the peer's, or none.
func (s *nativeSocket) sendNow(name []byte, message *Message) bool {
	if s.direct == nil || !s.loop.asleep.Load() || s.flies || len(s.sends) > 0 {
		return false
	}
	if message.SegmentSize != 0 || message.ECN != 0 || message.Source.IsValid() {
		return false
	}
	return s.direct.TrySend(name, message.Bytes)
}
