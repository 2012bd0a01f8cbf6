package quoit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// A handler of datagrams that calls runtime.Goexit, as t.FailNow does, loses its batch and no more.
func TestGoexitInEachCallbackOfDatagrams(t *testing.T) {
	endInEachDatagramCallback(t, "runtime.Goexit", runtime.Goexit)
}

// So does one that panics.
func TestAPanicInEachCallbackOfDatagrams(t *testing.T) {
	endInEachDatagramCallback(t, "panicked", func() { panic("as asked") })
}

// logged counts the messages with a text.
type logged struct {
	slog.Handler
	text  string
	count *atomic.Int32
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) Handle(_ context.Context, record slog.Record) error {
	if strings.Contains(record.Message, l.text) {
		l.count.Add(1)
	}
	return nil
}

func endInEachDatagramCallback(t *testing.T, said string, end func()) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, callback := range []string{"datagram", "writable", "failed", "closed"} {
			t.Run(callback, func(t *testing.T) {
				var messages atomic.Int32
				called := make(chan error, 4)
				ends := func(in string, why error) {
					if callback == in {
						called <- why
						end()
					}
				}
				handler := answers(t)
				answer := handler.datagram
				handler.datagram = func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
					switch string(batch[0].Bytes) {
					case "end":
						ends("datagram", nil)
					case "fill":
						for s.WriteTo(make([]byte, 1000), batch[0].Peer) == nil {
						}
					default:
						answer(s, batch)
					}
				}
				handler.writable = func(*quoit.DatagramSocket) { ends("writable", nil) }
				handler.failed = func(_ *quoit.DatagramSocket, err error) { ends("failed", err) }
				handler.closed = func(_ *quoit.DatagramSocket, err error) { ends("closed", err) }
				// The connection is of the same loop, and has nothing to do with it.
				logger := quoit.WithLogger(slog.New(logged{slog.DiscardHandler, said, &messages}))
				loops, err := quoit.NewLoops(engine, quoit.WithLoops(1), logger)
				if err != nil {
					t.Fatal(err)
				}
				defer loops.Close()
				if callback == "writable" && loops.Engine() == quoit.EngineStd {
					t.Skip("the kernel's own queue makes who sends wait")
				}
				stream := dial(t, start(t, echoes(), quoit.OnLoops(loops)).Addr())
				roundTrip(t, stream, "before")
				server, err := quoit.StartDatagrams("udp4", "127.0.0.1:0", handler, quoit.OnLoops(loops), logger,
					quoit.WithWaterMarks(4000, 1000))
				if err != nil {
					t.Fatal(err)
				}
				client, other := dialUDP(t, server.Addr()), dialUDP(t, server.Addr())
				switch callback {
				case "datagram":
					client.Write([]byte("end"))
					receive(t, called) // what comes with it is lost with it
				case "writable":
					client.Write([]byte("fill"))
					receive(t, called)
				case "failed":
					// Nowhere can anybody be reached by port 0.
					if err := server.Sockets()[0].WriteTo([]byte("hello"), netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
						t.Fatal(err)
					}
					if err := receive(t, called); !errors.Is(err, syscall.EINVAL) {
						t.Error(err)
					}
				}
				for range 3 {
					ask(t, other, "still there", "still there")
					roundTrip(t, stream, "after")
				}
				if err := server.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if callback == "closed" {
					if err := receive(t, called); err != nil {
						t.Error(err)
					}
				}
				roundTrip(t, stream, "after the end")
				if len(called) > 0 || messages.Load() != 1 {
					t.Errorf("it was called %d times more, and logged %d times", len(called), messages.Load())
				}
			})
		}
	})
}
