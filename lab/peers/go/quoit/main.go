// The command quoit serves echo and HTTP on Quoit's loops, through Quoit's Go module, in the ways that it has:
//
//	event     a handler of the event API; HTTP as gnet's server answers it
//	fasthttp  a fasthttp handler on the loop
//	nethttp   a net/http handler on the loop
//	listener  net/http's own server over Quoit's net.Listener
//
// The handlers are those of the rivals of the same name. It links libquoit, so that it is one file like the others.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	quoit "github.com/quoit-io/quoit/go"
	loopfasthttp "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/loophttp"

	"quoit-lab/peers/internal/handlers"
	"quoit-lab/peers/internal/peer"
)

func main() {
	const usage = "quoit: usage: quoit event|fasthttp|nethttp|listener uring|epoll echo|http [OPTIONS]"
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	way := os.Args[1]
	engine, err := quoit.ParseEngine(os.Args[2])
	services := map[string][]string{
		"event": {"echo", "http"}, "fasthttp": {"http"}, "nethttp": {"http"}, "listener": {"http"},
	}[way]
	if err != nil || services == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	os.Args = slices.Delete(os.Args, 1, 3)
	peer.Run("quoit", services, func(arguments peer.Arguments) error {
		// Room for the lab's idle connections in one loop.
		options := []quoit.Option{quoit.WithEngine(engine), quoit.WithLoops(arguments.Loops), quoit.WithConnections(20480)}
		if way == "listener" {
			return listen(arguments, options)
		}
		return serve(arguments, handler(way, arguments), options)
	}, peer.WithWrites)
}

func handler(way string, arguments peer.Arguments) quoit.Handler {
	switch {
	case way == "fasthttp":
		return loopfasthttp.New(handlers.FastHTTP)
	case way == "nethttp":
		return loophttp.New(http.HandlerFunc(handlers.NetHTTP))
	case arguments.Service == "echo":
		return echo{}
	default:
		peer.StartResponses()
		return &events{writeEach: arguments.WriteEach}
	}
}

func serve(arguments peer.Arguments, handler quoit.Handler, options []quoit.Option) error {
	signals := peer.Signals()
	server, err := quoit.Start(arguments.Listen.String(), handler, options...)
	if err != nil {
		return err
	}
	ready(server.Addr(), server.Loops(), arguments)
	<-signals
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Shutdown(ended); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func listen(arguments peer.Arguments, options []quoit.Option) error {
	signals := peer.Signals()
	listener, err := quoit.Listen("tcp", arguments.Listen.String(), options...)
	if err != nil {
		return err
	}
	ready(listener.Addr(), listener.Loops(), arguments)
	server := http.Server{Handler: http.HandlerFunc(handlers.NetHTTP)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err = <-ended:
		return errors.Join(errors.New("the server ended by itself"), err)
	case <-signals:
		return server.Close()
	}
}

func ready(address net.Addr, loops *quoit.Loops, arguments peer.Arguments) {
	peer.Ready(address, loops.Engine().String(), arguments.Loops, "github.com/quoit-io/quoit/go")
}

type echo struct{ quoit.BaseHandler }

func (echo) OnData(c *quoit.Conn)     { c.WriteTo(c) }
func (echo) OnWritable(c *quoit.Conn) { c.WriteTo(c) }

// events answers HTTP as the server on gnet does.
type events struct {
	quoit.BaseHandler
	writeEach bool
	// outputs are buffers of responses, one a loop at most.
	outputs sync.Pool
}

// OnData answers what has come completely. OnWritable would go on after a full queue; a client that does not read
// 256 KiB of answers is left to its own, as on gnet.
func (e *events) OnData(c *quoit.Conn) {
	input, err := c.Peek(c.Buffered())
	if err != nil {
		return
	}
	output, ok := e.outputs.Get().(*[]byte)
	if !ok {
		output = new([]byte)
	}
	defer e.outputs.Put(output)
	answer := peer.Answer
	if e.writeEach {
		answer = peer.AnswerOne
	}
	used := 0
	for {
		length, written := answer(input[used:], (*output)[:0])
		*output = written
		if length == 0 {
			break
		}
		used += length
		if _, err := c.Write(written); err != nil {
			c.Abort()
			return
		}
	}
	c.Discard(used)
}
