package quoit

import "sync"

// keptSize is the capacity of buffers that are used again.
const keptSize = 16 << 10

var keptPool = sync.Pool{New: func() any { return &kept{bytes: make([]byte, 0, keptSize)} }}

// kept is memory for received bytes that were not consumed in their turn.
type kept struct{ bytes []byte }

func (k *kept) release() {
	if cap(k.bytes) == keptSize {
		k.bytes = k.bytes[:0]
		keptPool.Put(k)
	}
}

// inbound is what has arrived and was not consumed. It belongs to one goroutine at a time: a loop's, or the holder of
// a net.Conn's lock.
type inbound struct {
	unread []byte // the bytes
	owner  *kept  // of unread; nil if they are the loop's, and go with the callback
	ended  bool   // the peer's end has come after them
}

// offer adds bytes that are the caller's. Alone they are not copied, and keepRest must follow before they go.
func (in *inbound) offer(view []byte) {
	if len(in.unread) == 0 {
		in.drop()
		in.unread = view
		return
	}
	in.keep(view)
}

// keep adds a copy of bytes.
func (in *inbound) keep(view []byte) {
	owner := in.owner
	if owner == nil {
		owner = keptPool.Get().(*kept)
		owner.bytes = append(owner.bytes[:0], in.unread...)
		in.owner = owner
	} else if len(in.unread) < len(owner.bytes) {
		// The consumed part makes room.
		owner.bytes = owner.bytes[:copy(owner.bytes, in.unread)]
	}
	owner.bytes = append(owner.bytes, view...)
	in.unread = owner.bytes
}

// keepRest keeps what was offered and not consumed, and gives back memory that holds nothing.
func (in *inbound) keepRest() {
	if len(in.unread) == 0 {
		in.drop()
	} else if in.owner == nil {
		in.keep(nil)
	}
}

// drop forgets everything.
func (in *inbound) drop() {
	in.unread = nil
	if in.owner != nil {
		in.owner.release()
		in.owner = nil
	}
}

// take returns what is there, and forgets n bytes of it.
func (in *inbound) take(n int) []byte {
	taken := in.unread[:n]
	in.unread = in.unread[n:]
	return taken
}
