package quoit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/internal/required"
)

// addresses are one that answers, one that refuses, and one that is silent, as its queue is full.
func addresses(t *testing.T) (answers, refuses, silent string) {
	t.Helper()
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		return listener
	}
	full := listen()
	raw, err := full.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var shortened error
	if err := raw.Control(func(fd uintptr) { shortened = syscall.Listen(int(fd), 0) }); err != nil || shortened != nil {
		t.Fatal(err, shortened)
	}
	first, err := net.Dial("tcp", full.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	// A connected socket has the address that refuses: nobody listens there, and nobody else can.
	return listen().Addr().String(), first.LocalAddr().String(), full.Addr().String()
}

func TestOfTwoFamiliesTheOneThatAnswersIsTaken(t *testing.T) {
	answers, refuses, silent := addresses(t)
	for _, engine := range []Engine{EngineURing, EngineEpoll} {
		t.Run(engine.String(), func(t *testing.T) {
			dialer, err := NewDialer(WithEngine(engine), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				required.Skip(t, engine, err)
			}
			t.Cleanup(func() { _ = dialer.Close() })
			// Longer than the whole test may take: whoever waits for the silent one does not pass.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, targets := range [][2][]string{
				{{silent}, {answers}}, {{silent}, {refuses, answers}}, {{refuses}, {answers}}, {{refuses, answers}, {silent}},
				{{answers}, {silent}}, {{answers}, nil},
			} {
				conn, err := dialer.dialBeside(ctx, "tcp", targets[0], targets[1])
				if err != nil {
					t.Fatalf("%v: %v", targets, err)
				}
				if to := conn.RemoteAddr().String(); to != answers {
					t.Errorf("%v: connected to %s", targets, to)
				}
				_ = conn.Close()
			}
			_, err = dialer.dialBeside(ctx, "tcp", []string{refuses}, []string{refuses})
			var failed *net.OpError
			if !errors.As(err, &failed) || !errors.Is(err, syscall.ECONNREFUSED) || failed.Addr.String() != refuses {
				t.Error(err)
			}
			given, giveUp := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := dialer.dialBeside(given, "tcp", []string{silent}, []string{silent})
				ended <- err
			}()
			giveUp()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestTargetsAreDividedByFamily(t *testing.T) {
	first, others := byFamily([]string{"[::1]:1", "127.0.0.1:1", "[fe80::1]:1"})
	if len(first) != 2 || first[1] != "[fe80::1]:1" || len(others) != 1 || others[0] != "127.0.0.1:1" {
		t.Error(first, others)
	}
}
