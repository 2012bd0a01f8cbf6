// Echo writes back what arrives, however slowly the peer reads.
package main

import (
	"context"
	"net"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
)

func main() { example.Run(serve) }

type echo struct{ quoit.BaseHandler }

// OnData writes back as much as the outbound queue has room for. The rest stays where it is: receiving pauses when it
// grows, and OnWritable goes on.
func (echo) OnData(c *quoit.Conn) { c.WriteTo(c) }

// OnWritable goes on.
func (echo) OnWritable(c *quoit.Conn) { c.WriteTo(c) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	server, err := quoit.Start(address, echo{})
	if err != nil {
		return err
	}
	ready(server.Addr())
	<-ctx.Done()
	return example.Drain(server.Shutdown)
}
