// Grpc serves gRPC's health service over a listener on the loops.
package main

import (
	"context"
	"net"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	listener, err := quoit.Listen("tcp", address)
	if err != nil {
		return err
	}
	server, state := grpc.NewServer(), health.NewServer()
	state.SetServingStatus("example", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		state.Shutdown() // ends those who watch
		stopped <- example.Drain(stop(server), listener.Shutdown)
	})()
	ready(listener.Addr())
	if err := server.Serve(listener); err != nil {
		return err
	}
	return <-stopped
}

// stop stops a server gracefully, and what is left when the context ends at once.
func stop(server *grpc.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)()
		server.GracefulStop()
		return ctx.Err()
	}
}
