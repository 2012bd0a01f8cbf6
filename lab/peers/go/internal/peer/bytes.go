package peer

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// BytesPath is where /bytes/N begins: a response whose body has N bytes.
const BytesPath = "/bytes/"

// MostBytes is the longest body of /bytes/N.
const MostBytes = 1_000_000_000_000

// BytesAsked is the length that a path of /bytes/N asks for.
func BytesAsked(path string) (int64, bool) {
	digits, found := strings.CutPrefix(path, BytesPath)
	if !found {
		return 0, false
	}
	length, err := strconv.ParseUint(digits, 10, 63)
	return int64(length), err == nil && length <= MostBytes
}

// The byte at position p of a body is p mod period, as of `quoit serve http`: a prime, so that a byte that is lost or
// doubled shows.
const period = 251

// pattern is some periods of a body, which is written from it in parts.
var pattern = func() []byte {
	bytes := make([]byte, 64*period)
	for position := range bytes {
		bytes[position] = byte(position % period)
	}
	return bytes
}()

// Body is the rest of a body of /bytes/N: an io.Reader that is nothing but two numbers.
type Body struct{ position, length int64 }

// NewBody is a body of that length.
func NewBody(length int64) *Body { return &Body{length: length} }

// Next is the part that comes next, which must not be changed; it is empty at the end.
func (b *Body) Next() []byte {
	part := pattern[b.position%period:]
	return part[:min(int64(len(part)), b.length-b.position)]
}

// Advance goes on after so many bytes of Next.
func (b *Body) Advance(count int) { b.position += int64(count) }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	count := copy(p, b.Next())
	b.Advance(count)
	if count == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return count, nil
}

// WriteTo implements io.WriterTo: it writes part after part, as an application does that waits for its writer.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	from := b.position
	for {
		part := b.Next()
		if len(part) == 0 {
			return b.position - from, nil
		}
		count, err := w.Write(part)
		b.Advance(count)
		if err == nil && count < len(part) {
			err = errors.New("a writer took a part, and said nothing")
		}
		if err != nil {
			return b.position - from, err
		}
	}
}
