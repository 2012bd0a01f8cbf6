package main

import (
	"context"
	"net"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestCallsAndStreams has both ends on loops.
func TestCallsAndStreams(t *testing.T) {
	address := exampletest.Start(t, serve)
	dialer, err := quoit.NewDialer()
	if err != nil {
		t.Fatal(err)
	}
	defer dialer.Close()
	connection, err := grpc.NewClient("passthrough:///"+address.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := grpc_health_v1.NewHealthClient(connection)
	request := &grpc_health_v1.HealthCheckRequest{Service: "example"}
	for range 100 {
		answer, err := client.Check(t.Context(), request)
		if err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatal(answer, err)
		}
	}
	watching, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Watch(watching, request)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Error(answer, err)
	}
}
