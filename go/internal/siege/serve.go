package siege

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// What is served: a small response, a long one, and one that does not end.
const (
	SmallPath   = "/small"
	LargePath   = "/large"
	EndlessPath = "/endless"

	smallSize = 5
	LargeSize = 200_000
	endless   = 1_000_000_000_000
)

// Size is how long the response to a path is; none for others.
func Size(path string) (int64, bool) {
	size, found := map[string]int64{SmallPath: smallSize, LargePath: LargeSize, EndlessPath: endless}[path]
	return size, found
}

// Body is a response's body, whose byte at position p is p mod 251.
type Body struct{ at, size int64 }

// NewBody is a body of that size.
func NewBody(size int64) *Body { return &Body{size: size} }

var pattern = func() (bytes [64 * 251]byte) {
	for index := range bytes {
		bytes[index] = byte(index % 251)
	}
	return bytes
}()

// Next is what comes next, at most some KiB; none at the end.
func (b *Body) Next() []byte {
	part := pattern[b.at%251:]
	return part[:min(int64(len(part)), b.size-b.at)]
}

// Advance goes on behind so many bytes.
func (b *Body) Advance(count int) { b.at += int64(count) }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	count := copy(p, b.Next())
	b.Advance(count)
	if count == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return count, nil
}

// Serve is an http.HandlerFunc. It writes for as long as its peer reads.
func Serve(w http.ResponseWriter, r *http.Request) {
	size, found := Size(r.URL.Path)
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, _ = io.Copy(w, NewBody(size)) // the peer may have gone
}

// Blocks is whether Serve may write for long.
func Blocks(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, EndlessPath) }
