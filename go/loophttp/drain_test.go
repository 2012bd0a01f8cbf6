package loophttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/draintest"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/loophttp"
)

// answersAfter answers as draintest wants it.
func answersAfter(release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == draintest.UpgradePath {
			w.Header().Set("Connection", "upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			connection, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			go draintest.Upgraded(connection, buffered)
			return
		}
		_, _ = io.WriteString(w, draintest.Text)
		if r.URL.Path != "/" {
			w.(http.Flusher).Flush()
		}
		if r.URL.Path == draintest.HeldPath {
			<-release
			_, _ = io.WriteString(w, draintest.Text)
		}
	})
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		server := &http.Server{Handler: answersAfter(release)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		draintest.Requests(t, draintest.Server{
			Address: listener.Addr(), Release: release, LosesParts: true,
			Shutdown: func() error { return server.Shutdown(context.Background()) },
		})
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		release := make(chan struct{})
		handler := loophttp.New(answersAfter(release), loophttp.Blocking(func(r *http.Request) bool {
			return r.URL.Path != "/"
		}))
		server := toShutDown(t, engine, handler)
		server.Release = release
		draintest.Requests(t, server)
		if err := handler.Close(); err != nil {
			t.Error(err)
		}
	})
}

// toShutDown starts a server for draintest.
func toShutDown(t *testing.T, engine quoit.Engine, handler *loophttp.Handler) draintest.Server {
	t.Helper()
	server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
		quoit.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		required.Skip(t, engine, err)
	}
	return draintest.Server{Address: server.Addr(), Shutdown: func() error { return server.Shutdown(context.Background()) }}
}

// A connection that was taken over runs on the server's loops, which end with it: it is closed, where net/http leaves it alone.
func TestShutdownClosesWhatWasTakenOver(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: answersAfter(nil)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		if !draintest.Upgrade(t, draintest.Server{Address: listener.Addr(), Shutdown: func() error {
			return server.Shutdown(context.Background())
		}}) {
			t.Error("no difference any more, though listed in docs/go.md")
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		handler := loophttp.New(answersAfter(nil))
		if draintest.Upgrade(t, toShutDown(t, engine, handler)) {
			t.Error("it goes on")
		}
		if err := handler.Close(); err != nil {
			t.Error(err)
		}
	})
}
