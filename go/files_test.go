package quoit_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// noise are bytes of which no part is like another one.
var noise = sync.OnceValue(func() []byte {
	bytes := make([]byte, 4<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(bytes); at += 8 {
		binary.LittleEndian.PutUint64(bytes[at:], random.Uint64())
	}
	return bytes
})

// newFile makes a file of so many bytes, opened to be read and written. What it has beyond those of noise are zeros.
func newFile(t *testing.T, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, noise()[:min(size, len(noise()))], 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := file.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	return file
}

// offset notes where a file stands.
func (e *ends) offset(file *os.File) {
	at, err := file.Seek(0, io.SeekCurrent)
	e.see("the file is at", at, err)
}

// copies copies while the peer reads to its end, and notes both.
func (e *ends) copies(r io.Reader) {
	came := make(chan string, 1)
	go func() {
		sum := crc32.NewIEEE()
		n, err := io.Copy(sum, e.peer)
		came <- fmt.Sprint("the peer has ", n, " bytes ", sum.Sum32(), " ", err)
	}()
	e.write("head")
	n, err := io.Copy(e.conn, r)
	e.see("copied", n, err)
	e.write("tail")
	e.see("close", e.conn.Close())
	e.see(receive(e.t, came))
}

// small makes the kernel's buffers small, so that not all of a file fits.
func (e *ends) small() {
	e.peer.(interface{ SetReadBuffer(int) error }).SetReadBuffer(128 << 10)
	e.conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(128 << 10)
}

const fileSize = 3<<20 + 123

// source is a connection of package net's from which so many bytes come.
func source(t *testing.T, size int) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := dial(t, l.Addr())
	to, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		to.Write(bytes.Repeat([]byte("x"), size))
		to.Close()
	}()
	return from
}

// failing is a reader with an error of its own.
type failing struct{}

var errOwn = errors.New("of its own")

func (failing) Read([]byte) (int, error) { return 0, errOwn }

var livesWithFiles = []life{
	{"a file", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.copies(file)
		e.offset(file)
	}},
	{"a file at its offset", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		file.Seek(1_000_001, io.SeekStart)
		e.copies(file)
		e.offset(file)
	}},
	{"a file behind its end", false, nil, func(e *ends) {
		file := newFile(e.t, 100_000)
		file.Seek(100_001, io.SeekStart)
		e.copies(file)
		e.offset(file)
	}},
	{"a small file", false, nil, func(e *ends) {
		file := newFile(e.t, 100)
		e.copies(file)
		e.offset(file)
	}},
	{"an empty file", false, nil, func(e *ends) { e.copies(newFile(e.t, 0)) }},
	{"a part of a file", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		limited := &io.LimitedReader{R: file, N: 1_000_001}
		e.copies(limited)
		e.see("left", limited.N)
		e.offset(file)
	}},
	{"nothing of a file", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.copies(io.LimitReader(file, 0))
		e.offset(file)
	}},
	{"more than there is of a file", false, nil, func(e *ends) {
		file := newFile(e.t, 1_000_001)
		limited := &io.LimitedReader{R: file, N: fileSize}
		e.copies(limited)
		e.see("left", limited.N)
		e.offset(file)
	}},
	{"a file that is not to be read", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		only, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
		if err != nil {
			e.t.Fatal(err)
		}
		defer only.Close()
		e.copies(only)
	}},
	{"a closed file", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		file.Close()
		e.copies(file)
		n, err := io.Copy(e.conn, io.LimitReader(file, 100_000))
		e.see("nothing of it", n, err)
	}},
	{"a folder", false, nil, func(e *ends) {
		folder, err := os.Open(e.t.TempDir())
		if err != nil {
			e.t.Fatal(err)
		}
		defer folder.Close()
		e.copies(folder)
	}},
	{"a file of the kernel", false, nil, func(e *ends) {
		file, err := os.Open("/proc/filesystems")
		if err != nil {
			e.t.Skip(err)
		}
		defer file.Close()
		e.copies(file)
	}},
	{"a file that sendfile(2) refuses", false, nil, func(e *ends) {
		file, err := os.Open("/proc/config.gz")
		if err != nil {
			e.t.Skip(err)
		}
		defer file.Close()
		e.copies(file)
		e.offset(file)
	}},
	{"a pipe", false, nil, func(e *ends) {
		from, to, err := os.Pipe()
		if err != nil {
			e.t.Fatal(err)
		}
		defer from.Close()
		go func() {
			to.Write(bytes.Repeat([]byte("pipe"), 100_000))
			to.Close()
		}()
		e.copies(from)
	}},
	{"a connection", false, nil, func(e *ends) {
		e.copies(source(e.t, 1_000_001))
	}},
	{"a part of a connection", false, nil, func(e *ends) {
		limited := &io.LimitedReader{R: source(e.t, 1_000_001), N: 300_000}
		e.copies(limited)
		e.see("left", limited.N)
	}},
	{"a reader that fails", false, nil, func(e *ends) {
		e.copies(io.MultiReader(strings.NewReader("some"), failing{}))
	}},
	{"a file to a closed connection", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.see("close", e.conn.Close())
		n, err := io.Copy(e.conn, file)
		e.see("copied", n, err)
	}},
	{"a file behind the end of the direction", false, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.see("close write", e.conn.(writeCloser).CloseWrite())
		n, err := io.Copy(e.conn, file)
		e.see("copied", n, err)
		e.offset(file)
		e.peerReads()
	}},
	{"a file to a peer that has reset", true, nil, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.resets()
		e.read()
		n, err := io.Copy(e.conn, file)
		e.see("copied", n, err)
		e.offset(file)
	}},
	{"the peer resets while a file waits", true, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		e.waits("the copy", func() (int, error) { n, err := io.Copy(e.conn, file); return int(n), err }, func() {
			io.ReadFull(e.peer, make([]byte, 1<<20)) // it is under way
			e.resets()
		})
	}},
	{"close while a file waits", false, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		e.waits("the copy", func() (int, error) { n, err := io.Copy(e.conn, file); return int(n), err }, func() {
			io.ReadFull(e.peer, make([]byte, 1<<20))
			e.see("close", e.conn.Close())
		})
	}},
	{"the direction ends while a file waits", true, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		e.waits("the copy", func() (int, error) { n, err := io.Copy(e.conn, file); return int(n), err }, func() {
			io.ReadFull(e.peer, make([]byte, 1<<20))
			e.see("close write", e.conn.(writeCloser).CloseWrite())
		})
		e.see("close", e.conn.Close())
	}},
	{"a deadline while a file waits, and the rest", false, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		sum, came := crc32.NewIEEE(), int64(0)
		copied := int64(0)
		for range 3 {
			e.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			n, err := io.Copy(e.conn, file)
			e.see("copied", err)
			copied += n
			at, err := file.Seek(0, io.SeekCurrent)
			e.see("the file is behind it", at == copied, err)
			n, _ = io.CopyN(sum, e.peer, 100_000) // there is room again, but not for all
			came += n
		}
		e.conn.SetWriteDeadline(time.Time{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			n, _ := io.Copy(sum, e.peer)
			came += n
		}()
		n, err := io.Copy(e.conn, file)
		e.see("copied the rest", copied+n == 4<<20, err)
		e.offset(file)
		e.see("close", e.conn.Close())
		receive(e.t, done)
		e.see("the peer has", came, sum.Sum32())
	}},
	{"a deadline while a part of a file waits", false, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		limited := &io.LimitedReader{R: file, N: 3 << 20}
		e.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := io.Copy(e.conn, limited)
		e.see("copied", n < 3<<20, err)
		if strings.HasPrefix(e.conn.LocalAddr().Network(), "tcp") { // of a Unix socket a part is read that is not sent
			at, err := file.Seek(0, io.SeekCurrent)
			e.see("the file and what is left say so", at == n, limited.N == 3<<20-n, err)
		}
	}},
	{"a deadline in the past, and the file", false, &difference{
		"a copy that may not begin leaves the file where it was; package net's has read 32 KiB, which nobody gets",
		map[string]string{
			"copied 3113083 nil":                          "copied 3145851 nil",
			"the peer has 3113091 bytes 2346843927 <nil>": "the peer has 3145859 bytes 663767883 <nil>",
		},
	}, func(e *ends) {
		file := newFile(e.t, fileSize)
		e.conn.SetWriteDeadline(time.Unix(1, 0))
		n, err := io.Copy(e.conn, file)
		e.see("copied", n, err)
		e.conn.SetWriteDeadline(time.Time{})
		e.copies(file)
	}},
	{"a file that gets shorter while its copy waits", false, nil, func(e *ends) {
		e.small()
		file := newFile(e.t, 4<<20)
		e.write("head")
		var copied, came int64
		var written, end error
		e.waits("the copy", func() (n int, err error) {
			copied, err = io.Copy(e.conn, file)
			_, written = io.WriteString(e.conn, "tail")
			e.conn.Close()
			return 0, err
		}, func() {
			came, _ = io.CopyN(io.Discard, e.peer, 1<<20) // it is under way
			if err := file.Truncate(1000); err != nil {
				e.t.Fatal(err)
			}
			var rest int64
			rest, end = io.Copy(io.Discard, e.peer)
			came += rest
		})
		e.see("short", copied > 0 && copied < 4<<20, written)
		e.see("the peer has it all", came == copied+8, end)
		at, err := file.Seek(0, io.SeekCurrent)
		e.see("the file is behind it", at == copied, err)
	}},
	{"a file that gets shorter behind a deadline, and a close", true, nil, func(e *ends) {
		e.shortensBehindADeadline()
		e.see("close", e.conn.Close())
		_, err := io.Copy(io.Discard, e.peer)
		e.see("the peer sees", err)
	}},
	{"a file that gets shorter behind a deadline", true, &difference{
		"the part that was on its way counts as written, and too little of it is there; what is written next must not pass for it",
		map[string]string{"the peer sees nil": "the peer sees *net.OpError{read tcp source true address true} of read broken timeout false"},
	}, func(e *ends) {
		copied := e.shortensBehindADeadline()
		_, err := io.CopyN(io.Discard, struct{ io.Reader }{e.peer}, copied)
		e.see("the peer sees", err)
		e.conn.Close()
	}},
}

// shortensBehindADeadline copies a file until a deadline, as the peer does not read, and again when it has become shorter. It answers
// what it was told has been copied.
func (e *ends) shortensBehindADeadline() int64 {
	e.small()
	file := newFile(e.t, 4<<20)
	e.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	copied, err := io.Copy(e.conn, file) // a part is on its way
	e.see("copied", copied < 3<<20, err)
	if err := file.Truncate(1000); err != nil {
		e.t.Fatal(err)
	}
	e.conn.SetWriteDeadline(time.Time{})
	n, err := io.Copy(e.conn, file)
	e.see("copied", n, err)
	return copied
}

// What becomes of files that are copied to a connection, and of the connection, is as on package net.
func TestFilesAreCopiedAsByPackageNet(t *testing.T) { compareLives(t, livesWithFiles) }

// A file that waits for a slow reader is in no memory of the process: neither what Go queues, nor the library's.
func TestAFileIsNotCopied(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		file := newFile(t, 32<<20) // more than two kernel's buffers take
		peer := dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		held := func() (queued, chunks uint64) {
			counters := listener.Loops().Counters()[0]
			return counters.Get("queued_bytes"), counters.Get("send_chunks_used")
		}
		conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		sent, err := io.Copy(conn, file)
		if !errors.Is(err, os.ErrDeadlineExceeded) || sent == 0 {
			t.Fatalf("%d bytes, %v", sent, err)
		}
		if queued, chunks := held(); queued != 0 || chunks != 0 {
			t.Errorf("%d bytes are queued, and %d chunks used, although the file is sent from where it is", queued, chunks)
		}
		// What is copied is there, so that the counters can tell.
		conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := io.Copy(conn, struct{ io.Reader }{file}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if queued, _ := held(); queued == 0 {
			t.Error("nothing is queued, although bytes were copied that nobody takes")
		}
		peer.Close()
	})
}

// What net/http serves of a file is the same bytes, whole and in part, and sent from where they are, too.
func TestNetHTTPSendsFiles(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		small, large := newFile(t, fileSize), newFile(t, 32<<20)
		want, err := os.ReadFile(small.Name())
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, small.Name()) })
		held := make(chan uint64, 1)
		mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			http.ServeContent(w, r, "large", time.Time{}, large) // more than anybody takes here
			held <- listener.Loops().Counters()[0].Get("queued_bytes")
		})
		server := &http.Server{Handler: mux}
		go server.Serve(listener)
		defer server.Close()
		for _, part := range []struct {
			header string
			bytes  []byte
		}{
			{"", want},
			{"bytes=100-2000000", want[100:2_000_001]},
			{"bytes=3145800-", want[3_145_800:]},
		} {
			request, err := http.NewRequest("GET", "http://"+listener.Addr().String()+"/small", nil)
			if err != nil {
				t.Fatal(err)
			}
			if part.header != "" {
				request.Header.Set("Range", part.header)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || !bytes.Equal(body, part.bytes) {
				t.Errorf("%q: %d bytes, and not the %d of the file, %v", part.header, len(body), len(part.bytes), err)
			}
		}
		client := dial(t, listener.Addr())
		fmt.Fprint(client, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
		if queued := receive(t, held); queued != 0 {
			t.Errorf("%d bytes of a file are queued, although it is sent from where it is", queued)
		}
	})
}
