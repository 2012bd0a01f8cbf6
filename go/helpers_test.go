package quoit_test

import (
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// patience ends a test that hangs; nothing depends on it otherwise.
const patience = 2 * time.Minute

// engines are those that run here.
var engines = sync.OnceValue(func() []quoit.Engine {
	var usable []quoit.Engine
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll, quoit.EngineStd} {
		loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(1), quiet())
		if err == nil {
			usable = append(usable, engine)
			loops.Close()
		}
	}
	return usable
})

func quiet() quoit.Option { return quoit.WithLogger(slog.New(slog.DiscardHandler)) }

// onEngines runs a test on each engine.
func onEngines(t *testing.T, test func(t *testing.T, engine quoit.Option)) {
	for _, engine := range engines() {
		t.Run(engine.String(), func(t *testing.T) { test(t, quoit.WithEngine(engine)) })
	}
}

// onLibraryEngines runs a test on each engine of libquoit.
func onLibraryEngines(t *testing.T, test func(t *testing.T, engine quoit.Option)) {
	for _, engine := range engines() {
		if engine != quoit.EngineStd {
			t.Run(engine.String(), func(t *testing.T) { test(t, quoit.WithEngine(engine)) })
		}
	}
}

// handler is a Handler made of functions; those that are nil do what BaseHandler does.
type handler struct {
	quoit.BaseHandler
	open     func(c *quoit.Conn)
	data     func(c *quoit.Conn)
	writable func(c *quoit.Conn)
	closed   func(c *quoit.Conn, err error)
	tick     func(loop int) time.Duration
}

func (h *handler) OnOpen(c *quoit.Conn) {
	if h.open != nil {
		h.open(c)
	}
}

func (h *handler) OnData(c *quoit.Conn) {
	if h.data != nil {
		h.data(c)
	} else {
		h.BaseHandler.OnData(c)
	}
}

func (h *handler) OnWritable(c *quoit.Conn) {
	if h.writable != nil {
		h.writable(c)
	}
}

func (h *handler) OnClose(c *quoit.Conn, err error) {
	if h.closed != nil {
		h.closed(c, err)
	}
}

func (h *handler) OnTick(loop int) time.Duration {
	if h.tick != nil {
		return h.tick(loop)
	}
	return 0
}

// echoes writes back what arrives, as far as there is room, and the rest when there is.
func echoes() *handler {
	echo := func(c *quoit.Conn) { c.WriteTo(c) }
	return &handler{data: echo, writable: echo}
}

// start starts a server that is shut down with the test.
func start(t *testing.T, h quoit.Handler, options ...quoit.Option) *quoit.Server {
	t.Helper()
	server, err := quoit.Start("127.0.0.1:0", h, append([]quoit.Option{quiet(), quoit.WithLoops(2)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, server) })
	return server
}

func dial(t *testing.T, address net.Addr) net.Conn {
	t.Helper()
	connection, err := net.Dial(address.Network(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(patience))
	return connection
}

// refusing is an address of TCP that refuses: a connected socket has it, so that nobody listens there and nobody else can.
func refusing(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return dial(t, listener.Addr()).LocalAddr().String()
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatal("nothing has come")
		panic("unreachable")
	}
}

func roundTrip(t *testing.T, connection io.ReadWriter, text string) {
	t.Helper()
	if _, err := io.WriteString(connection, text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(text))
	if _, err := io.ReadFull(connection, answer); err != nil {
		t.Fatal(err)
	}
	if string(answer) != text {
		t.Fatalf("%q came back as %q", text, answer)
	}
}
