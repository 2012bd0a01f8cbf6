// Package tests holds tests of the module that need others, so that its users need not.
package tests

import (
	"log/slog"
	"net"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"golang.org/x/net/nettest"
)

var engines = []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll}

// pipe connects a dialled connection with an accepted one, on loops of an engine.
func pipe(engine quoit.Engine, network string) nettest.MakePipe {
	return func() (dialled, accepted net.Conn, stop func(), err error) {
		address := "127.0.0.1:0"
		if network == "unix" {
			path, err := nettest.LocalPath()
			if err != nil {
				return nil, nil, nil, err
			}
			address = path
		}
		loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(2),
			quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, nil, nil, err
		}
		listener, err := quoit.Listen(network, address, quoit.OnLoops(loops))
		if err != nil {
			return nil, nil, nil, err
		}
		dialer, err := quoit.NewDialer(quoit.OnLoops(loops))
		if err != nil {
			return nil, nil, nil, err
		}
		dialled, err = dialer.Dial(network, listener.Addr().String())
		if err != nil {
			return nil, nil, nil, err
		}
		accepted, err = listener.Accept()
		stop = func() {
			dialled.Close()
			accepted.Close()
			listener.Close()
			loops.Close()
		}
		return dialled, accepted, stop, err
	}
}

func TestConnectionsAreNetConns(t *testing.T) {
	for _, engine := range engines {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(engine.String()+"/"+network, func(t *testing.T) {
				nettest.TestConn(t, pipe(engine, network))
			})
		}
	}
}
