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
	defer context.AfterFunc(ctx, func() {
		state.Shutdown() // ends those who watch
		server.GracefulStop()
	})()
	ready(listener.Addr())
	return server.Serve(listener)
}
