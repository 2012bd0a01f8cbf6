// Package draintest shuts servers of HTTP down in the midst of requests: the same for every way in which the module serves
// HTTP, and for the stock servers that those stand in for.
package draintest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// patience ends a test that hangs; nothing depends on it otherwise.
const patience = 30 * time.Second

// What the server answers: Text at once, at StreamedPath as a stream, and at HeldPath twice, the second time when Release was
// closed.
const (
	Text         = "hello"
	StreamedPath = "/streamed"
	HeldPath     = "/held"
)

// UpgradePath is served by Upgraded, on a connection that was taken over, behind a 101.
const UpgradePath = "/upgrade"

// Upgraded sends back what comes.
func Upgraded(connection net.Conn, reader io.Reader) {
	_, _ = io.Copy(connection, reader) // until either end goes
	_ = connection.Close()
}

// Server is what is shut down.
type Server struct {
	Address  net.Addr
	Release  chan struct{} // closed by the test
	Shutdown func() error
	// LosesParts says that a request of which only a part has come is not waited for, as by net/http.
	LosesParts bool
}

// client is a connection and what has been read from it.
type client struct {
	net.Conn
	name   string
	reader *bufio.Reader
}

// Requests shuts the server down beside idle connections, and others whose requests have come in part, or whose
// responses have left in part: those are answered, and all connections end in order.
func Requests(t *testing.T, server Server) {
	t.Helper()
	idle, moved, streamed := server.dial(t, "idle"), server.dial(t, "moved"), server.dial(t, "streamed")
	partial, held := server.dial(t, "partial"), server.dial(t, "held")
	idle.ask(t, "/", "")
	idle.answered(t, Text)
	// Where requests are served on loops, this one is not.
	moved.ask(t, "/", "Expect: 100-continue\r\nContent-Length: 0\r\n")
	moved.answered(t, Text)
	streamed.ask(t, StreamedPath, "")
	streamed.answered(t, Text)
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	// Together, so that the part is there with the first response.
	partial.write(t, request+request[:len(request)-1])
	partial.answered(t, Text)
	held.ask(t, HeldPath, "")
	response := held.response(t)
	begun := make([]byte, len(Text))
	if _, err := io.ReadFull(response.Body, begun); err != nil || string(begun) != Text {
		t.Fatalf("%q, %v", begun, err)
	}

	done := make(chan error, 1)
	go func() { done <- server.Shutdown() }()
	// So it has begun.
	idle.ended(t)
	moved.ended(t)
	streamed.ended(t)
	select {
	case err := <-done:
		t.Fatalf("it is over while requests are under way: %v", err)
	default:
	}
	if !server.LosesParts {
		partial.write(t, request[len(request)-1:])
		partial.answered(t, Text)
	}
	partial.ended(t)
	close(server.Release)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != Text {
		t.Errorf("%q, %v", rest, err)
	}
	held.ended(t)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// Upgrade shuts the server down beside a connection that was taken over. It returns whether that goes on, or has ended in order.
func Upgrade(t *testing.T, server Server) (goesOn bool) {
	t.Helper()
	upgraded := server.dial(t, "upgraded")
	upgraded.ask(t, UpgradePath, "Connection: upgrade\r\nUpgrade: echo\r\n")
	if response := upgraded.response(t); response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	upgraded.write(t, "a")
	if answer, err := upgraded.reader.ReadByte(); err != nil || answer != 'a' {
		t.Fatalf("%q, %v", answer, err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Shutdown() }()
	ended := make(chan error, 1)
	go func() {
		_, err := upgraded.reader.ReadByte()
		ended <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
		upgraded.write(t, "b")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return true
	case err := <-ended:
		if err != io.EOF {
			t.Errorf("it has not ended in order: %v", err)
		}
		_ = upgraded.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return false
	}
}

func (server Server) dial(t *testing.T, name string) client {
	t.Helper()
	connection, err := net.Dial("tcp", server.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	return client{connection, name, bufio.NewReader(connection)}
}

func (c client) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func (c client) ask(t *testing.T, path, fields string) {
	t.Helper()
	c.write(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+fields+"\r\n")
}

func (c client) response(t *testing.T) *http.Response {
	t.Helper()
	for {
		response, err := http.ReadResponse(c.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusContinue {
			return response
		}
	}
}

func (c client) answered(t *testing.T, want string) {
	t.Helper()
	if body, err := io.ReadAll(c.response(t).Body); err != nil || string(body) != want {
		t.Fatalf("%q, %v", body, err)
	}
}

func (c client) ended(t *testing.T) {
	t.Helper()
	if _, err := c.reader.ReadByte(); err != io.EOF {
		t.Fatalf("the %s connection has not ended in order: %v", c.name, err)
	}
	_ = c.Close()
}
