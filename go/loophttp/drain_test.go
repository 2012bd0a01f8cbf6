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
	"github.com/quoit-io/quoit/go/loophttp"
)

// answersAfter answers as draintest wants it.
func answersAfter(release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
			quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Skip(err)
		}
		draintest.Requests(t, draintest.Server{Address: server.Addr(), Release: release, Shutdown: func() error {
			return server.Shutdown(context.Background())
		}})
		if err := handler.Close(); err != nil {
			t.Error(err)
		}
	})
}
