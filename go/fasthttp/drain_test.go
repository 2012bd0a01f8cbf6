package fasthttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
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
func toShutDown(t *testing.T, engine quoit.Engine, handler quoit.Handler) draintest.Server {
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

// tellingOfDrains is a Handler that tells when a connection that has left the loop is told of a shutdown.
type tellingOfDrains struct {
	*loop.Handler
	told chan struct{}
}

func (h tellingOfDrains) OnDrainDetached(n *quoit.NetConn) {
	h.Handler.OnDrainDetached(n)
	close(h.told)
}

// What is under way off the loop is responded to at a shutdown also where more requests have come behind it. fasthttp keeps a
// response back then until it has responded to those, and its own server loses it.
func TestShutdownAnswersWhatIsUnderWayBeforeOtherRequests(t *testing.T) {
	for name, respond := range map[string]func(ctx *fasthttp.RequestCtx){
		"in time": func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString(draintest.Text) },
		"late":    func(ctx *fasthttp.RequestCtx) { ctx.TimeoutError(draintest.Text) },
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, engine quoit.Engine) {
				entered, release, told := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
				server := toShutDown(t, engine, tellingOfDrains{loop.New(func(ctx *fasthttp.RequestCtx) {
					entered <- struct{}{}
					<-release
					respond(ctx)
				}), told})
				busy := dial(t, server.Address)
				io.WriteString(busy, chunks+get)
				<-entered
				ended := make(chan error, 1)
				go func() { ended <- server.Shutdown() }()
				<-told
				close(release)
				response, err := http.ReadResponse(busy.reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(response.Body); string(body) != draintest.Text || err != nil || !response.Close {
					t.Errorf("%q, %v, closes: %v", body, err, response.Close)
				}
				if _, err := busy.reader.ReadByte(); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) { // the second request is not read
					t.Error(err)
				}
				busy.Close()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
