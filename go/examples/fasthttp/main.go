// Fasthttp serves a fasthttp handler on the loops.
package main

import (
	"context"
	"net"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/valyala/fasthttp"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	server, err := quoit.Start(address, loop.New(func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("text/plain")
		ctx.WriteString("Hello, World!")
	}))
	if err != nil {
		return err
	}
	ready(server.Addr())
	<-ctx.Done()
	return example.Drain(server.Shutdown)
}
