// Package frame finds out whether bytes begin with a whole HTTP/1.1 request that can be served on a loop. It decides
// nothing else: the request is parsed by the framework that serves it.
package frame

import (
	"bytes"
	"encoding/binary"
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

const lineEnd = "\r\n"

// Scan looks at the bytes from the start of a request on. limit is the most that a request, head and body, may have
// to be served on the loop. For Whole it returns the request's length in bytes, as for More where its head is there. It
// reads each byte of the head once, and a head that is malformed already may be to Move before its end is there.
func Scan(view []byte, limit int) (Verdict, int) {
	seen := view[:min(len(view), limit)]
	first := bytes.IndexByte(seen, '\n')
	if first < 0 {
		return unfinished(view, limit)
	}
	if !bytes.HasSuffix(seen[:first], []byte(" HTTP/1.1\r")) || bytes.HasPrefix(seen, []byte("CONNECT ")) {
		return Move, 0
	}
	body, hosts, lengths := 0, 0, 0
	at := first + 1
	for {
		start := at
		for at < len(seen) && classes[seen[at]]&token != 0 {
			at++
		}
		if at+len(lineEnd) > len(seen) {
			return unfinished(view, limit)
		}
		name := seen[start:at]
		if len(name) == 0 && string(seen[at:at+len(lineEnd)]) == lineEnd {
			break
		}
		// Folded lines, bare line feeds and names that are none are for the framework's server to refuse.
		if len(name) == 0 || seen[at] != ':' {
			return Move, 0
		}
		start = at + 1
		at = start + textLength(seen[start:])
		if at+len(lineEnd) > len(seen) {
			return unfinished(view, limit)
		}
		if string(seen[at:at+len(lineEnd)]) != lineEnd {
			return Move, 0
		}
		value := seen[start:at]
		at += len(lineEnd)
		switch len(name) {
		case len("host"):
			if is(name, "host") {
				if !all(trim(value), host) {
					return Move, 0
				}
				hosts++
			}
		case len("content-length"):
			if is(name, "content-length") {
				value = trim(value)
				length, err := strconv.ParseUint(string(value), 10, 31)
				if err != nil || value[0] == '+' {
					return Move, 0
				}
				body = int(length)
				lengths++
			}
		case len("expect"), len("upgrade"), len("transfer-encoding"):
			if is(name, "expect") || is(name, "upgrade") || is(name, "trailer") || is(name, "transfer-encoding") {
				return Move, 0
			}
		}
	}
	whole := at + len(lineEnd) + body
	switch {
	case hosts != 1 || lengths > 1 || whole > limit:
		return Move, 0
	case len(view) < whole:
		return More, whole
	}
	return Whole, whole
}

// AsksForMore is whether a request wants more than a response: a 100 (Continue) first, or another protocol. fields is its
// head after the first line, which a framework has parsed without fault.
func AsksForMore(fields []byte) bool {
	for {
		if begins(fields, "expect:") || begins(fields, "upgrade:") {
			return true
		}
		end := bytes.IndexByte(fields, '\n')
		if end < 0 {
			return false
		}
		fields = fields[end+1:]
	}
}

// begins is whether a line begins with text in lower case, in any case.
func begins(line []byte, lower string) bool {
	return len(line) >= len(lower) && line[0]|0x20 == lower[0] && is(line[:len(lower)], lower)
}

// unfinished is the verdict on a head whose end is not within the limit.
func unfinished(view []byte, limit int) (Verdict, int) {
	if len(view) >= limit || !plausible(view) {
		return Move, 0
	}
	return More, 0
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

// textLength is how many bytes there are before the first that may not be in a field's value.
func textLength(line []byte) int {
	const (
		ones = 0x0101010101010101
		high = 0x80 * ones
	)
	at := 0
	for ; at+8 <= len(line); at += 8 {
		eight := binary.LittleEndian.Uint64(line[at:])
		deletes := eight ^ 0x7f*ones
		// A byte below ' ' borrows from its highest bit, as does a DEL from 1; a tab is looked at below.
		if (eight-' '*ones)&^eight&high != 0 || (deletes-ones)&^deletes&high != 0 {
			break
		}
	}
	for at < len(line) && classes[line[at]]&text != 0 {
		at++
	}
	return at
}

// trim takes from a value what RFC 9110 has around it (5.5), and no other space.
func trim(value []byte) []byte { return bytes.Trim(value, " \t") }

func all(bytes []byte, class uint8) bool {
	for _, c := range bytes {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}
