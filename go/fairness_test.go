package quoit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/siege"
)

// responder answers HTTP on the event API: it writes a body as there is room for it, and takes no other request before.
type responder struct{ quoit.BaseHandler }

func (h responder) OnData(c *quoit.Conn) {
	if c.Context() == nil {
		h.answer(c)
	}
}

func (h responder) OnWritable(c *quoit.Conn) {
	if body, sending := c.Context().(*siege.Body); !sending || respond(c, body) {
		h.answer(c)
	}
}

// answer returns what is there completely, as far as there is room.
func (responder) answer(c *quoit.Conn) {
	for {
		view, _ := c.Peek(c.Buffered())
		end := bytes.Index(view, []byte("\r\n\r\n"))
		if end < 0 {
			return
		}
		path := bytes.Fields(view[:end])[1]
		size, _ := siege.Size(string(path))
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size); err != nil {
			return // full, and called again; or it has ended
		}
		c.Discard(end + 4)
		body := siege.NewBody(size)
		c.SetContext(body)
		if !respond(c, body) {
			return
		}
	}
}

// respond writes of a body what there is room for; true when it is over.
func respond(c *quoit.Conn, body *siege.Body) bool {
	for part := body.Next(); len(part) > 0; part = body.Next() {
		if _, err := c.Write(part); err != nil {
			return false
		}
		body.Advance(len(part))
	}
	c.SetContext(nil)
	return true
}

func TestNoPeerKeepsOthersFromTheEventAPI(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, responder{}, engine, siege.Marks(), quoit.WithLoops(1))
		siege.HTTP(t, siege.Target{Address: server.Addr(), Loops: server.Loops()})
		server = start(t, echoes(), engine, quoit.WithLoops(1))
		t.Run("echo", func(t *testing.T) {
			siege.Echo(t, siege.Target{Address: server.Addr(), Loops: server.Loops()})
		})
	})
}

// onListeners runs a test on package net, and on each engine of libquoit.
func onListeners(t *testing.T, test func(t *testing.T, listener net.Listener, loops *quoit.Loops)) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		test(t, listener, nil)
	})
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", engine, siege.Marks(), quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		test(t, listener, listener.Loops())
	})
}

func TestNoPeerKeepsOthersFromNetHTTP(t *testing.T) {
	onListeners(t, func(t *testing.T, listener net.Listener, loops *quoit.Loops) {
		server := &http.Server{Handler: http.HandlerFunc(siege.Serve)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		siege.HTTP(t, siege.Target{Address: listener.Addr(), Loops: loops})
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := receive(t, ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func TestNoPeerKeepsOthersFromConnections(t *testing.T) {
	onListeners(t, func(t *testing.T, listener net.Listener, loops *quoit.Loops) {
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer connection.Close()
					_, _ = io.Copy(connection, connection)
				}()
			}
		}()
		siege.Echo(t, siege.Target{Address: listener.Addr(), Loops: loops})
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}
