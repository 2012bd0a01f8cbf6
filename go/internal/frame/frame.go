// Package frame finds out whether bytes begin with a whole HTTP/1.1 request that can be served on a loop. It decides
// nothing else: the request is parsed by the framework that serves it.
package frame

import (
	"bytes"
	"strconv"
)

// Verdict is what to do with the bytes.
type Verdict int

const (
	// More bytes are needed.
	More Verdict = iota
	// Whole: a request is there, and is to be served on the loop.
	Whole
	// Move the connection to a goroutine: what comes streams, is too large, upgrades, waits for a 100 (Continue), is
	// another version of HTTP, or is malformed, which the framework's own server answers as it does.
	Move
)

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\r\n")
)

// Scan looks at the bytes from the start of a request on. limit is the most that a request, head and body, may have
// to be served on the loop. For Whole it answers the request's length in bytes, as
// for More where its head is there.
func Scan(view []byte, limit int) (Verdict, int) {
	end := bytes.Index(view[:min(len(view), limit)], headEnd)
	if end < 0 {
		if len(view) >= limit || !plausible(view) {
			return Move, 0
		}
		return More, 0
	}
	head, body := view[:end+len(lineEnd)], 0
	first := bytes.Index(head, lineEnd)
	if !bytes.HasSuffix(head[:first], []byte(" HTTP/1.1")) || bytes.HasPrefix(head, []byte("CONNECT ")) {
		return Move, 0
	}
	hosts, lengths := 0, 0
	for rest := head[first+len(lineEnd):]; len(rest) > 0; {
		next := bytes.Index(rest, lineEnd)
		line := rest[:next]
		rest = rest[next+len(lineEnd):]
		colon := bytes.IndexByte(line, ':')
		// Folded lines, bare line feeds and names that are none are for the framework's server to refuse.
		if colon <= 0 || !all(line[:colon], token) || !all(line[colon+1:], text) {
			return Move, 0
		}
		switch name, value := line[:colon], bytes.TrimSpace(line[colon+1:]); {
		case is(name, "host"):
			if !all(value, host) {
				return Move, 0
			}
			hosts++
		case is(name, "content-length"):
			length, err := strconv.ParseUint(string(value), 10, 31)
			if err != nil || value[0] == '+' {
				return Move, 0
			}
			body = int(length)
			lengths++
		case is(name, "transfer-encoding"), is(name, "expect"), is(name, "upgrade"), is(name, "trailer"):
			return Move, 0
		}
	}
	whole := end + len(headEnd) + body
	switch {
	case hosts != 1 || lengths > 1 || whole > limit:
		return Move, 0
	case len(view) < whole:
		return More, whole
	}
	return Whole, whole
}

// plausible is whether an unfinished head may become one of HTTP/1.1: it begins with a letter.
func plausible(view []byte) bool {
	return len(view) == 0 || 'A' <= view[0] && view[0] <= 'Z' && !bytes.HasPrefix(view, []byte("PRI "))
}

// is compares a field's name with one in lower case.
func is(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for index := range name {
		c := name[index]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[index] {
			return false
		}
	}
	return true
}

// What bytes may be in a field's name (a token, RFC 9110, 5.6.2), in its value, and in a host.
const (
	token = 1 << iota
	text
	host
)

var classes = func() (classes [256]uint8) {
	for c := range classes {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if letter || c < 0x80 && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0 {
			classes[c] |= token
		}
		if letter || c < 0x80 && bytes.IndexByte([]byte("-._~:[]"), byte(c)) >= 0 {
			classes[c] |= host
		}
		if c == '\t' || c >= ' ' && c != 0x7f {
			classes[c] |= text
		}
	}
	return classes
}()

func all(bytes []byte, class uint8) bool {
	for _, c := range bytes {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}
