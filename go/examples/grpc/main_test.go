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

func TestMain(m *testing.M) { exampletest.Main(m, main) }

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

// A stream that is open is told, and waited for.
func TestASignalEndsItBehindStreams(t *testing.T) {
	process := exampletest.Run(t)
	connection, err := grpc.NewClient("passthrough:///"+process.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	watching, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := grpc_health_v1.NewHealthClient(connection).Watch(watching,
		&grpc_health_v1.HealthCheckRequest{Service: "example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
		grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		if answer, err := stream.Recv(); err != nil || answer.Status != want {
			t.Fatal(answer, err)
		}
		if want == grpc_health_v1.HealthCheckResponse_SERVING {
			process.Terminate(t)
		}
	}
	cancel()
	process.Ends(t)
}
