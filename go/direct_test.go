package quoit_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/siege"
)

const (
	writeBuffer = 64 << 10
	large       = 200_000 // more than a socket with that buffer takes at once
)

// stream is the bytes of a connection: who reads it sees if one is missing, doubled or overtaken.
type stream struct{ *siege.Body }

func newStream() stream { return stream{siege.NewBody(1 << 40)} }

// next returns bytes that lie in front of a pointer if they are few, as those of a buffer in a structure do: cgo's rules are about
// what is passed, and not about what is beside it.
func (s stream) next(length int) ([]byte, error) {
	structure := &struct {
		bytes  [512]byte
		beside *stream
	}{beside: &s}
	next := structure.bytes[:]
	if length > len(next) {
		next = make([]byte, length)
	}
	next = next[:length]
	_, err := io.ReadFull(s, next)
	return next, err
}

// pieces is in what sizes the response to a request is written: mostly a little at once, and now and then more than a socket takes.
func pieces(request byte) []int {
	random := rand.New(rand.NewPCG(uint64(request), 0))
	sizes := make([]int, 1+random.IntN(3))
	for index := range sizes {
		sizes[index] = 1 + random.IntN(500)
		if random.IntN(24) == 0 {
			sizes[index] = large
		}
	}
	return sizes
}

// respondInPieces writes what each request asks for, until there is none; then it ends its direction behind that.
func respondInPieces(conn net.Conn) error {
	request, written := make([]byte, 1), newStream()
	for {
		if _, err := conn.Read(request); err == io.EOF {
			return conn.(interface{ CloseWrite() error }).CloseWrite()
		} else if err != nil {
			return err
		}
		for _, size := range pieces(request[0]) {
			piece, err := written.next(size)
			if err != nil {
				return err
			}
			if n, err := conn.Write(piece); err != nil {
				return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
			}
		}
	}
}

// askInTurn sends requests one by one, each when the response to the one before is there, until it is enough, and then a
// hundred at once. It returns what is not as it should be.
func askInTurn(conn *net.TCPConn, enough func(requests int) bool) error {
	read, written := 0, newStream()
	check := func(length int) error {
		got := make([]byte, length)
		if n, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("behind byte %d: %w", read+n, err)
		}
		expected, err := written.next(length)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, expected) {
			return fmt.Errorf("the bytes from %d to %d are not what was written", read, read+length)
		}
		read += length
		return nil
	}
	total := func(request byte) (sum int) {
		for _, size := range pieces(request) {
			sum += size
		}
		return sum
	}
	for requests := 0; !enough(requests); requests++ {
		if _, err := conn.Write([]byte{byte(requests)}); err != nil {
			return err
		}
		if err := check(total(byte(requests))); err != nil {
			return err
		}
	}
	var burst []byte
	for request := range byte(100) {
		burst = append(burst, request)
	}
	if _, err := conn.Write(burst); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	for _, request := range burst {
		if err := check(total(request)); err != nil {
			return err
		}
	}
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		return fmt.Errorf("%d bytes too many, and then: %w", len(rest), err)
	}
	return nil
}

// serveAsked has connections of the listener respond, and asks by four at once.
func serveAsked(t *testing.T, listener net.Listener, enough func(requests int) bool) {
	const clients = 4
	results := make(chan error, 2*clients)
	for range clients {
		client := dial(t, listener.Addr())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(writeBuffer); err != nil {
			t.Fatal(err)
		}
		go func() { results <- respondInPieces(conn) }()
		go func() { results <- askInTurn(client.(*net.TCPConn), enough) }()
	}
	for range 2 * clients {
		if err := receive(t, results); err != nil {
			t.Fatal(err) // the others would wait for what does not come
		}
	}
}

// What a goroutine writes leaves by itself while the loop sleeps, and through the loop otherwise; who reads must not see which.
func TestWritesKeepTheirOrderWhoeverSendsThem(t *testing.T) {
	t.Run("package net", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		serveAsked(t, listener, func(requests int) bool { return requests >= 100 })
	})
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quoit.WithLoops(1), quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer loops.Close()
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", quoit.OnLoops(loops))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		sends := func() (direct, all uint64) {
			counters := loops.Counters()[0]
			return counters.Get("direct_sends"), counters.Get("sends")
		}
		serveAsked(t, listener, func(requests int) bool {
			direct, all := sends()
			// Both kinds, and a good number of each: that depends on how the threads run.
			return requests >= 100 && (loops.Engine() == quoit.EngineStd || direct >= 20 && all >= direct+20)
		})
	})
}
