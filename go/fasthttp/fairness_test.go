package fasthttp_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/internal/siege"
	"github.com/valyala/fasthttp"
)

func serveSiege(ctx *fasthttp.RequestCtx) {
	switch size, found := siege.Size(string(ctx.Path())); {
	case !found:
		ctx.SetStatusCode(fasthttp.StatusNotFound)
	case string(ctx.Path()) == siege.EndlessPath:
		ctx.SetBodyStream(siege.NewBody(size), int(size))
	default:
		_, _ = io.Copy(ctx, siege.NewBody(size)) // which takes everything
	}
}

func TestNoPeerKeepsOthersFromBeingServed(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &fasthttp.Server{Handler: serveSiege}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		siege.HTTP(t, siege.Target{Address: listener.Addr()})
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll, quoit.EngineStd} {
		t.Run(engine.String(), func(t *testing.T) {
			server, err := quoit.Start("127.0.0.1:0", loop.New(serveSiege), quoit.WithEngine(engine), quoit.WithLoops(1),
				siege.Marks(), quoit.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			siege.HTTP(t, siege.Target{Address: server.Addr(), Loops: server.Loops()})
			if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}
