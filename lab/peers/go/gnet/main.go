// The command gnet serves echo and HTTP on gnet's event loops.
//
// Built with the tag poll_opt, as gnet's own benchmarks are: events then carry a pointer to their connection.
// A loop accepts and serves its own connections (SO_REUSEPORT): otherwise a further loop accepts and hands
// them over. Level-triggered, which is gnet's default: one receive answers one readiness, where the
// edge-triggered mode always makes another that finds nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/panjf2000/gnet/v2"

	"quoit-lab/peers/internal/peer"
)

func main() {
	peer.Run("gnet", []string{"echo", "http"}, serve, peer.Writes)
}

func serve(arguments peer.Arguments) error {
	address, err := peer.Reserve(arguments.Listen)
	if err != nil {
		return err
	}
	arguments.Listen = address
	common := server{arguments: arguments}
	var handler gnet.EventHandler = &echo{common}
	if arguments.Service == "http" {
		peer.StartResponses()
		handler = &http{server: common}
	}
	return gnet.Run(handler, "tcp://"+address.String(),
		gnet.WithNumEventLoop(arguments.Loops),
		gnet.WithReusePort(true),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithLogger(errorLog{}))
}

// errorLog writes errors to standard error and drops the rest: gnet's own log goes to standard output.
type errorLog struct{}

func (errorLog) Debugf(string, ...any) {}
func (errorLog) Infof(string, ...any)  {}
func (errorLog) Warnf(string, ...any)  {}

func (errorLog) Errorf(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "gnet: "+format+"\n", arguments...)
}

func (log errorLog) Fatalf(format string, arguments ...any) {
	log.Errorf(format, arguments...)
	os.Exit(1)
}

// server is what both services do alike.
type server struct {
	gnet.BuiltinEventEngine
	arguments peer.Arguments
}

// OnBoot is called once the socket listens.
func (s *server) OnBoot(engine gnet.Engine) gnet.Action {
	signals := peer.Signals()
	peer.Ready(s.arguments.Listen, "gnet", s.arguments.Loops, "github.com/panjf2000/gnet/v2")
	go func() {
		<-signals
		if err := engine.Stop(context.Background()); err != nil {
			errorLog{}.Errorf("stopping: %v", err)
		}
	}()
	return gnet.None
}

type echo struct{ server }

// OnTraffic returns what has been received from the loop's own buffer, without a copy.
func (*echo) OnTraffic(connection gnet.Conn) gnet.Action {
	received, err := connection.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := connection.Write(received); err != nil {
		return gnet.Close
	}
	return gnet.None
}

type http struct {
	server
	// outputs are buffers of responses, one per loop at most.
	outputs sync.Pool
}

// OnTraffic answers a pipelined batch, with one write or with one for each response.
func (h *http) OnTraffic(connection gnet.Conn) gnet.Action {
	received, err := connection.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	output, ok := h.outputs.Get().(*[]byte)
	if !ok {
		output = new([]byte)
	}
	defer h.outputs.Put(output)
	if h.arguments.Choices[peer.Writes.Name] == "each" {
		return h.answerEach(connection, received, output)
	}
	used, written := peer.Answer(received, (*output)[:0], nil)
	*output = written
	if used == 0 {
		// Discard(0) would drop the head that has come in part.
		return gnet.None
	}
	if _, err := connection.Discard(used); err != nil {
		return gnet.Close
	}
	if _, err := connection.Write(written); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func (h *http) answerEach(connection gnet.Conn, received []byte, output *[]byte) gnet.Action {
	used := 0
	for {
		length, written := peer.AnswerOne(received[used:], (*output)[:0], nil)
		*output = written
		if length == 0 {
			break
		}
		used += length
		if _, err := connection.Write(written); err != nil {
			return gnet.Close
		}
	}
	if used == 0 {
		return gnet.None
	}
	if _, err := connection.Discard(used); err != nil {
		return gnet.Close
	}
	return gnet.None
}
