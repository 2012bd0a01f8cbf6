package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	quoit "github.com/quoit-io/quoit/go"

	"quoit-lab/peers/internal/peer"
)

type echo struct{ quoit.BaseHandler }

func (echo) OnData(c *quoit.Conn)     { c.WriteTo(c) }
func (echo) OnWritable(c *quoit.Conn) { c.WriteTo(c) }

// events answers HTTP as the server on gnet does, and streams /bytes/N.
type events struct {
	quoit.BaseHandler
	answer func(input, output []byte, own func(request []byte) bool) (int, []byte)
	// outputs are buffers of responses, one per loop at most.
	outputs sync.Pool
}

// OnData answers what has come completely. A connection whose body is being sent has that as its context: until it is
// over, requests stay where they are, and at the inbound limit with the client.
func (e *events) OnData(c *quoit.Conn) {
	if c.Context() == nil {
		e.answerAll(c)
	}
}

// OnWritable goes on with the body, and after it with the requests that have come meanwhile.
func (e *events) OnWritable(c *quoit.Conn) {
	if body, sending := c.Context().(*peer.Body); sending && !stream(c, body) {
		return
	}
	e.answerAll(c)
}

// batch is how much of what has come is answered by one write, whose length is then below the high-water mark.
const batch = 16 << 10

// answerAll answers requests until one is not there completely, or there is no room for its response, and
// OnWritable follows.
func (e *events) answerAll(c *quoit.Conn) {
	input, err := c.Peek(c.Buffered())
	if err != nil {
		return
	}
	output, ok := e.outputs.Get().(*[]byte)
	if !ok {
		output = new([]byte)
	}
	defer e.outputs.Put(output)
	used := 0
	for {
		next := input[used:min(len(input), used+batch)]
		length, written := e.answer(next, (*output)[:0], asksForBytes)
		*output = written
		var body *peer.Body
		if length == 0 {
			size, head := bytesAsked(next)
			if head == 0 {
				if len(next) == batch {
					c.Abort() // no head is as long
				}
				break
			}
			length, body = head, peer.NewBody(size)
			written = fmt.Appendf(written, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		}
		if _, err := c.Write(written); err != nil {
			if !errors.Is(err, quoit.ErrFull) {
				c.Abort() // or it has ended
			}
			break
		}
		used += length
		if body != nil {
			c.SetContext(body)
			if !stream(c, body) {
				break
			}
		}
	}
	c.Discard(used)
}

// stream writes of the body what there is room for; true when it is over. Otherwise OnWritable follows, or the
// connection has ended.
func stream(c *quoit.Conn, body *peer.Body) bool {
	if _, err := body.WriteTo(c); err != nil {
		if !errors.Is(err, quoit.ErrFull) {
			c.Abort() // or it has ended
		}
		return false
	}
	c.SetContext(nil)
	return true
}

var bytesStart = []byte("GET " + peer.BytesPath)

func asksForBytes(request []byte) bool {
	_, head := bytesAsked(request)
	return head > 0
}

// bytesAsked is how long a body the request at the start of input asks for, and the length of its head; 0 if it is not
// there completely, or asks for something else.
func bytesAsked(input []byte) (size int64, head int) {
	if !bytes.HasPrefix(input, bytesStart) {
		return 0, 0
	}
	end := bytes.Index(input, []byte("\r\n\r\n"))
	target, _, found := bytes.Cut(input[len("GET "):], []byte(" HTTP/1.1\r\n"))
	if end < 0 || !found {
		return 0, 0
	}
	size, valid := peer.BytesAsked(string(target))
	if !valid {
		return 0, 0
	}
	return size, end + len("\r\n\r\n")
}
