package quoit

// outbound is what was written and has not left: under the connection's lock.
type outbound struct {
	flight  *block // being sent, or to be sent next
	sent    int    // bytes of flight that the library has
	flying  int    // bytes that were given to the turn under way
	blocked bool   // the library refused: its writable event is waited for
	queue   *block // what was written since
	refused bool   // a write was refused, so somebody waits for room
}

func (o *outbound) queued() int {
	queued := 0
	if o.flight != nil {
		queued = o.flight.length - o.sent
	}
	if o.queue != nil {
		queued += o.queue.length
	}
	return queued
}

// appendTo queues a copy, all of it or, where there is no memory, nothing.
func appendTo[T []byte | string](o *outbound, memory *blocks, p T) error {
	if len(p) == 0 {
		return nil
	}
	b, err := o.queue, error(nil)
	switch {
	case b == nil:
		b, err = memory.get(len(p))
	case b.room() < len(p):
		b, err = memory.grow(b, b.length+len(p))
	}
	if err != nil {
		return err
	}
	o.queue = b
	b.length += copy(b.memory[b.length:], p)
	return nil
}

// next returns what is to be given to the library now, at most so many bytes; nil if nothing is, or it must wait.
func (o *outbound) next(most int) []byte {
	if o.blocked || o.flying > 0 {
		return nil
	}
	if o.flight == nil {
		if o.queue == nil {
			return nil
		}
		o.flight, o.queue, o.sent = o.queue, nil, 0
	}
	rest := o.flight.bytes()[o.sent:]
	rest = rest[:min(len(rest), most)]
	o.flying = len(rest)
	return rest
}

// taken notes that the library has copied what next returned.
func (o *outbound) taken(memory *blocks) {
	o.sent += o.flying
	o.flying = 0
	if o.flight != nil && o.sent == o.flight.length {
		memory.put(o.flight)
		o.flight = nil
	}
}

// turnedAway notes that the library has refused what next returned, and tells when it has room.
func (o *outbound) turnedAway() {
	o.flying = 0
	o.blocked = true
}

// empty is whether nothing is left to send.
func (o *outbound) empty() bool { return o.flight == nil && o.queue == nil }

// drop forgets everything but what the turn under way reads.
func (o *outbound) drop(memory *blocks) {
	if o.queue != nil {
		memory.put(o.queue)
		o.queue = nil
	}
	if o.flight != nil && o.flying == 0 {
		memory.put(o.flight)
		o.flight = nil
	}
}
