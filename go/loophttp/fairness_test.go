package loophttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/internal/siege"
	"github.com/quoit-io/quoit/go/loophttp"
)

// Net/http's own server is besieged by the tests of package quoit, which has it over its listeners, too.
func TestNoPeerKeepsOthersFromBeingServed(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		handler := loophttp.New(http.HandlerFunc(siege.Serve), loophttp.Blocking(siege.Blocks))
		server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
			siege.Marks(), quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			required.Skip(t, engine, err)
		}
		siege.HTTP(t, siege.Target{Address: server.Addr(), Loops: server.Loops()})
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := handler.Close(); err != nil {
			t.Error(err)
		}
	})
}
