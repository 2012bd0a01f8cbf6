package fasthttp_test

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/draintest"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/valyala/fasthttp"
)

// answersAfter answers as draintest wants it.
func answersAfter(release <-chan struct{}) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case draintest.UpgradePath:
			ctx.SetStatusCode(fasthttp.StatusSwitchingProtocols)
			ctx.Response.Header.Set("Connection", "upgrade")
			ctx.Response.Header.Set("Upgrade", "echo")
			ctx.Hijack(func(connection net.Conn) { draintest.Upgraded(connection, connection) })
		case draintest.StreamedPath:
			ctx.SetBodyStream(strings.NewReader(draintest.Text), -1)
		case draintest.HeldPath:
			ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
				_, _ = w.WriteString(draintest.Text)
				_ = w.Flush()
				<-release
				_, _ = w.WriteString(draintest.Text)
			})
		default:
			ctx.SetBodyString(draintest.Text)
		}
	}
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		server := &fasthttp.Server{Handler: answersAfter(release)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		draintest.Requests(t, draintest.Server{Address: listener.Addr(), Release: release, Shutdown: server.Shutdown})
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) { shutDown(t, engine, &fasthttp.Server{}) })
}

// fasthttp wraps the connections that it counts. Its own server is not run here: its Shutdown closes those in a data race.
func TestShutdownAnswersWhatIsUnderWayWithALimitPerAddress(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) { shutDown(t, engine, &fasthttp.Server{MaxConnsPerIP: 100}) })
}

func shutDown(t *testing.T, engine quoit.Engine, limited *fasthttp.Server) {
	t.Helper()
	release := make(chan struct{})
	server := toShutDown(t, engine, loop.New(answersAfter(release), loop.WithServer(limited)))
	server.Release = release
	draintest.Requests(t, server)
}

// toShutDown starts a server for draintest.
func toShutDown(t *testing.T, engine quoit.Engine, handler *loop.Handler) draintest.Server {
	t.Helper()
	server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
		quoit.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		required.Skip(t, engine, err)
	}
	return draintest.Server{Address: server.Addr(), Shutdown: func() error { return server.Shutdown(context.Background()) }}
}

// A connection that was taken over runs on the server's loops, which end with it: it is closed, where fasthttp leaves it alone.
func TestShutdownClosesWhatWasTakenOver(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &fasthttp.Server{Handler: answersAfter(nil)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		if !draintest.Upgrade(t, draintest.Server{Address: listener.Addr(), Shutdown: server.Shutdown}) {
			t.Error("no difference any more, though listed in docs/go.md")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		if draintest.Upgrade(t, toShutDown(t, engine, loop.New(answersAfter(nil)))) {
			t.Error("it goes on")
		}
	})
}
