// Package doors runs software that people use over Quoit's listeners, dialers and packet connections: on package net first,
// and the same on each engine.
package doors

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// patience ends a test that hangs; nothing depends on it otherwise.
const patience = 60 * time.Second

// way is a way to the network: package net's, or Quoit's on one engine.
type way struct {
	listen func() (net.Listener, error)
	packet func() (net.PacketConn, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// onEachWay runs a test on package net, and then on each engine of libquoit. Both engines must run here.
func onEachWay(t *testing.T, test func(t *testing.T, w way)) {
	eachWay(t, func(name string, w way) { t.Run(name, func(t *testing.T) { test(t, w) }) })
}

// eachWay is onEachWay for what a test needs of all ways at once.
func eachWay(t *testing.T, with func(name string, w way)) {
	with("net", way{
		listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		packet: func() (net.PacketConn, error) { return net.ListenPacket("udp", "127.0.0.1:0") },
		dial:   new(net.Dialer).DialContext,
	})
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll} {
		options := []quoit.Option{quoit.WithEngine(engine), quoit.WithLogger(slog.New(slog.DiscardHandler))}
		dialer, err := quoit.NewDialer(options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dialer.Close() })
		with(engine.String(), way{
			listen: func() (net.Listener, error) { return quoit.Listen("tcp", "127.0.0.1:0", options...) },
			packet: func() (net.PacketConn, error) { return quoit.ListenPacket("udp", "127.0.0.1:0", options...) },
			dial:   dialer.DialContext,
		})
	}
}

func (w way) listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := w.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (w way) packetConn(t *testing.T) net.PacketConn {
	t.Helper()
	p, err := w.packet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func inPatience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
