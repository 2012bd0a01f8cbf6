package quoit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// noticing is a listener that tells when something was read of its connections.
type noticing struct {
	net.Listener
	got chan struct{}
}

func (l noticing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return noticingConn{conn, l.got}, nil
}

type noticingConn struct {
	net.Conn
	got chan struct{}
}

func (c noticingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.got <- struct{}{}
	}
	return n, err
}

// held is an HTTP server whose handlers last until they are released.
type held struct {
	*recorder
	server   *http.Server
	client   net.Conn
	reader   *bufio.Reader
	entered  chan struct{} // a handler is where it waits
	release  chan struct{}
	hijacked chan net.Conn
	news     chan struct{} // the server has a connection
	got      chan struct{} // it has read something
}

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	waits := func() {
		h.entered <- struct{}{}
		<-h.release
	}
	switch r.URL.Path {
	case "/wait":
		waits()
		io.WriteString(w, "waited")
	case "/upload":
		first := make([]byte, 1)
		io.ReadFull(r.Body, first)
		waits()
		rest, err := io.ReadAll(r.Body)
		if err != nil {
			return // as the connection has been closed
		}
		fmt.Fprint(w, len(rest)+1)
	case "/stream":
		io.WriteString(w, "begun ")
		http.NewResponseController(w).Flush()
		waits()
		io.WriteString(w, "and done")
	case "/hijack":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			h.t.Error(err)
			return
		}
		h.hijacked <- conn
	case "/panic":
		panic(http.ErrAbortHandler)
	case "/panics late":
		io.WriteString(w, "some")
		http.NewResponseController(w).Flush()
		panic("as asked")
	case "/exit":
		runtime.Goexit()
	default:
		io.WriteString(w, "hello")
	}
}

func (h *held) send(text string) { io.WriteString(h.client, text) }

// response notes a response, and what comes behind it until the end.
func (h *held) response(what string) {
	response, err := http.ReadResponse(h.reader, nil)
	if err != nil {
		h.see(what+": no response", err)
		return
	}
	body, err := io.ReadAll(response.Body)
	h.see(what, response.StatusCode, response.Close, string(body), err)
}

// end notes how the client's connection ends.
func (h *held) end() {
	rest, err := io.ReadAll(h.reader)
	if err != nil {
		err = fmt.Errorf("%w", err)
	}
	h.see("the end", len(rest), err)
}

const headOf = "GET %s HTTP/1.1\r\nHost: x\r\n\r\n"

// states are those of a connection when its server ends: how it comes there, and what it does then.
var states = []struct {
	name    string
	waits   bool // Shutdown lasts until something is released, or its context ends
	reach   func(h *held)
	goesOn  func(h *held)
	differs *difference
}{
	{"new", false, func(h *held) { receive(h.t, h.news) }, func(h *held) {}, nil},
	{"idle", false, func(h *held) {
		h.send(fmt.Sprintf(headOf, "/"))
		h.response("before")
	}, func(h *held) {}, nil},
	{"half a head", false, func(h *held) {
		h.send("GET / HTTP/1.1\r\nHo")
		receive(h.t, h.got)
	}, func(h *held) {}, nil},
	{"in a handler", true, func(h *held) {
		h.send(fmt.Sprintf(headOf, "/wait"))
		receive(h.t, h.entered)
	}, func(h *held) { close(h.release) }, nil},
	{"in a handler, with more behind", true, func(h *held) {
		h.send(fmt.Sprintf(headOf, "/wait") + fmt.Sprintf(headOf, "/"))
		receive(h.t, h.entered)
	}, func(h *held) { close(h.release) }, nil},
	{"in an upload", true, func(h *held) {
		h.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
		receive(h.t, h.entered)
	}, func(h *held) {
		h.send("67890")
		close(h.release)
	}, nil},
	{"in a stream", true, func(h *held) {
		h.send(fmt.Sprintf(headOf, "/stream"))
		receive(h.t, h.entered)
	}, func(h *held) { close(h.release) }, nil},
}

func (h *held) start(d *door) {
	l := d.local(h.t, "tcp")
	h.entered, h.release, h.hijacked = make(chan struct{}, 8), make(chan struct{}), make(chan net.Conn, 1)
	h.news, h.got = make(chan struct{}, 8), make(chan struct{}, 64)
	h.server = &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			h.news <- struct{}{}
		}
	}}
	go h.server.Serve(noticing{l, h.got})
	h.t.Cleanup(func() { h.server.Close() })
	h.client = dial(h.t, l.Addr())
	h.reader = bufio.NewReader(h.client)
}

// What clients see when a net/http server is shut down, with a connection at each state.
func TestShutdownOfNetHTTPIsAsOverPackageNet(t *testing.T) {
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel() // those whose state is not left wait a little
			compareDoors(t, state.differs, func(r *recorder, d *door) {
				h := &held{recorder: r}
				h.start(d)
				state.reach(h)
				limit := patience
				if state.name == "new" || state.name == "half a head" {
					// Of those net/http waits some seconds for the request.
					limit = 300 * time.Millisecond
				}
				within, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				begun, ended := make(chan struct{}), make(chan error, 1)
				h.server.RegisterOnShutdown(func() { close(begun) })
				go func() { ended <- h.server.Shutdown(within) }()
				receive(t, begun)
				if state.waits {
					select {
					case err := <-ended:
						h.see("it has not waited", err)
					default:
					}
				}
				state.goesOn(h)
				h.see("shutdown", receive(t, ended))
				h.see("close", h.server.Close())
				if state.waits {
					h.response("after")
				}
				h.end()
			})
		})
	}
}

// What they see when it is closed.
func TestCloseOfNetHTTPIsAsOverPackageNet(t *testing.T) {
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			compareDoors(t, state.differs, func(r *recorder, d *door) {
				h := &held{recorder: r}
				h.start(d)
				state.reach(h)
				h.see("close", h.server.Close())
				if state.name == "in a stream" {
					h.response("after")
				} else {
					h.end()
				}
				state.goesOn(h)
			})
		})
	}
}

// A connection that a handler took over is nobody's but the handler's.
func TestShutdownLeavesHijackedConnections(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		h := &held{recorder: r}
		h.start(d)
		h.send(fmt.Sprintf(headOf, "/hijack"))
		conn := receive(r.t, h.hijacked)
		h.see("shutdown", h.server.Shutdown(r.t.Context()))
		h.see("close", h.server.Close())
		io.WriteString(conn, "still here")
		answer := make([]byte, 10)
		n, err := io.ReadFull(h.reader, answer)
		h.see("the client reads", n, string(answer), err)
		h.send("and here")
		n, err = conn.Read(answer)
		h.see("the handler reads", n, err)
		h.see("close", conn.Close())
		h.end()
	})
}

// What clients see of handlers that panic, or end their goroutine: under net/http, over the listener.
func TestPanicsUnderNetHTTPAreAsOverPackageNet(t *testing.T) {
	for _, path := range []string{"/panic", "/panics%20late", "/exit"} {
		t.Run(strings.TrimPrefix(path, "/"), func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				h := &held{recorder: r}
				h.start(d)
				h.send(fmt.Sprintf(headOf, path))
				h.response("response")
				h.end()
				// And the next one is served.
				h.client = dial(h.t, h.client.RemoteAddr())
				h.reader = bufio.NewReader(h.client)
				h.send(fmt.Sprintf(headOf, "/"))
				h.response("the next one")
			})
		})
	}
}
