package quoit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/internal/required"
)

// failing is a handler whose loop fails when it has a connection.
type failing struct {
	BaseHandler
	failure error
}

func (h failing) OnOpen(c *Conn) { c.sink.(*handlerSink).server.loops.fail(h.failure) }

func TestServeLeavesNothingBehindWhenALoopFails(t *testing.T) {
	for _, engine := range []Engine{EngineURing, EngineEpoll, EngineStd} {
		t.Run(engine.String(), func(t *testing.T) {
			loops, err := NewLoops(WithEngine(engine), WithLoops(1), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			if err := loops.Close(); err != nil {
				t.Error(err)
			}
			leavesNothingBehind(t, engine)
		})
	}
}

func leavesNothingBehind(t *testing.T, engine Engine) {
	failure := errors.New("as asked")
	path := t.TempDir() + "/socket"
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(context.Background(), "unix:"+path, failing{failure: failure}, WithEngine(engine), WithLoops(2),
			WithCloseLimit(time.Minute), WithLogger(slog.New(slog.DiscardHandler)))
	}()
	client, err := net.Dial("unix", path)
	for err != nil {
		select {
		case failure := <-ended:
			t.Fatal(failure)
		default:
			client, err = net.Dial("unix", path)
		}
	}
	defer client.Close()
	// It is closed in order, and its peer is waited for.
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("something was sent")
	}
	_ = client.Close()
	if err := <-ended; !errors.Is(err, failure) {
		t.Error(err)
	}
	if other, err := net.Dial("unix", path); err == nil {
		other.Close()
		t.Error("it still listens")
	}
}

// The same of sockets for datagrams, on loops that go on.
func TestServeDatagramsLeavesNothingBehindWhenALoopFails(t *testing.T) {
	for _, engine := range []Engine{EngineURing, EngineEpoll, EngineStd} {
		t.Run(engine.String(), func(t *testing.T) {
			loops, err := NewLoops(WithEngine(engine), WithLoops(2), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			defer loops.Close()
			failure := errors.New("as asked")
			path := t.TempDir() + "/socket"
			ended := make(chan error, 1)
			go func() {
				ended <- ServeDatagrams(t.Context(), "unixgram", path, BaseDatagramHandler{}, OnLoops(loops), WithCloseLimit(time.Minute))
			}()
			client, err := net.Dial("unixgram", path)
			for err != nil {
				select {
				case failure := <-ended:
					t.Fatal(failure)
				default:
					client, err = net.Dial("unixgram", path)
				}
			}
			_ = client.Close()
			loops.fail(failure)
			if err := <-ended; !errors.Is(err, failure) {
				t.Error(err)
			}
			if other, err := net.Dial("unixgram", path); err == nil {
				other.Close()
				t.Error("it still receives")
			}
		})
	}
}
