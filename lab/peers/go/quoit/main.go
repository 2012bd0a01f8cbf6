// The command quoit serves echo, HTTP and DNS on Quoit's loops, through Quoit's Go module, in the ways that it has:
//
//	event     a handler of the event API; HTTP as gnet's server answers it
//	fasthttp  a fasthttp handler on the loop
//	nethttp   a net/http handler on the loop
//	listener  net/http's own server over Quoit's net.Listener
//	packet    a DNS library over Quoit's net.PacketConn
//
// The handlers are those of the rivals of the same name. It links libquoit, so that it is one file like the others.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	quoit "github.com/quoit-io/quoit/go"
	loopfasthttp "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/loophttp"
	"github.com/valyala/fasthttp"

	"quoit-lab/peers/internal/handlers"
	"quoit-lab/peers/internal/peer"
)

var (
	way    = peer.Choice{Name: "--way", Words: []string{"event", "fasthttp", "nethttp", "listener", "packet"}}
	engine = peer.Choice{Name: "--engine", Words: []string{"auto", "uring", "epoll", "std"}}
	// processor is whether GOMAXPROCS is one more than the loops, which then wait best, or as many, as for the rivals.
	processor = peer.Choice{Name: "--processor", Words: []string{"spare", "shared"}}
	// metrics is where the loops' counters can be read, if anywhere.
	metrics = peer.Choice{Name: "--metrics", Form: "HOST:PORT"}
)

func main() {
	peer.Run("quoit-go", []string{"echo", "http", "dns"}, func(arguments peer.Arguments) error {
		engine, err := quoit.ParseEngine(arguments.Choices[engine.Name])
		if err != nil {
			return err
		}
		// Room for the lab's idle connections in one loop.
		options := []quoit.Option{quoit.WithEngine(engine), quoit.WithLoops(arguments.Loops), quoit.WithConnections(20480)}
		way := arguments.Choices[way.Name]
		if arguments.Choices[processor.Name] == "spare" {
			options = append(options, quoit.WithSpareProcessor())
		}
		switch {
		case (way == "packet") != (arguments.Service == "dns"):
			return errors.New("--way packet is for dns, and dns is served by no other")
		case way == "packet":
			return answer(arguments, options)
		case way != "event" && arguments.Service == "echo":
			return fmt.Errorf("only --way event echoes, and not %q", way)
		case way == "listener":
			return listen(arguments, options)
		default:
			return serve(arguments, handler(way, arguments), options)
		}
	}, way, engine, processor, peer.Writes, metrics)
}

func handler(way string, arguments peer.Arguments) quoit.Handler {
	switch {
	case way == "fasthttp":
		server := &fasthttp.Server{Name: "quoit", DisableHeaderNamesNormalizing: true}
		return loopfasthttp.New(handlers.FastHTTP, loopfasthttp.WithServer(server))
	case way == "nethttp":
		return loophttp.New(http.HandlerFunc(handlers.NetHTTP), loophttp.Blocking(handlers.Streams))
	case arguments.Service == "echo":
		return echo{}
	default:
		peer.StartResponses()
		if arguments.Choices[peer.Writes.Name] == "each" {
			return &events{answer: peer.AnswerOne}
		}
		return &events{answer: peer.Answer}
	}
}

func serve(arguments peer.Arguments, handler quoit.Handler, options []quoit.Option) error {
	signals := peer.Signals()
	server, err := quoit.Start(arguments.Listen.String(), handler, options...)
	if err != nil {
		return err
	}
	if err := ready(server.Addr(), server.Loops(), arguments); err != nil {
		return err
	}
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
	if err := ready(listener.Addr(), listener.Loops(), arguments); err != nil {
		return err
	}
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

func answer(arguments peer.Arguments, options []quoit.Option) error {
	conn, err := quoit.ListenPacket("udp", arguments.Listen.String(), options...)
	if err != nil {
		return err
	}
	return peer.Datagrams(arguments, conn, handlers.DNS, conn.Loops().Engine().String(), "github.com/quoit-io/quoit/go")
}

// ready says that the server can be reached, and where its metrics can.
func ready(address net.Addr, loops *quoit.Loops, arguments peer.Arguments) error {
	if at := arguments.Choices[metrics.Name]; at != "" {
		if err := serveMetrics(at, loops); err != nil {
			return err
		}
	}
	peer.Ready(address, loops.Engine().String(), arguments.Loops, "github.com/quoit-io/quoit/go")
	return nil
}
