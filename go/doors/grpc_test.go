package doors

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// The cases of gRPC's interoperability tests (doc/interop-test-descriptions.md of grpc/grpc) that need no accounts. They end
// the process when one fails, and say which.
func TestGRPCInteroperates(t *testing.T) {
	onEachWay(t, func(t *testing.T, w way) {
		l := w.listener(t)
		server := grpc.NewServer()
		testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		dial := func(ctx context.Context, address string) (net.Conn, error) { return w.dial(ctx, "tcp", address) }
		conn, err := grpc.NewClient(
			"passthrough:///"+l.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		runInterop(t, conn)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.GracefulStop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// And tonic's, on tokio's sockets and on ours.
func TestTonicInteroperates(t *testing.T) {
	p := peer{"async-services", "--engine", nil, "tokio", []string{"uring", "epoll"}}
	for _, transport := range append([]string{p.stock}, p.ours...) {
		t.Run(transport, func(t *testing.T) {
			conn, err := grpc.NewClient(
				p.start(t, "grpc-interop", transport).String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			runInterop(t, conn)
		})
	}
}

// runInterop calls the test service at the other end in each of the ways. What fails ends the process.
func runInterop(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, client := inPatience(t), testgrpc.NewTestServiceClient(conn)
	interop.DoEmptyUnaryCall(ctx, client)
	interop.DoLargeUnaryCall(ctx, client)
	interop.DoClientStreaming(ctx, client)
	interop.DoServerStreaming(ctx, client)
	interop.DoPingPong(ctx, client)
	interop.DoEmptyStream(ctx, client)
	interop.DoTimeoutOnSleepingServer(ctx, client)
	interop.DoCancelAfterBegin(ctx, client)
	interop.DoCancelAfterFirstResponse(ctx, client)
	interop.DoCustomMetadata(ctx, client)
	interop.DoStatusCodeAndMessage(ctx, client)
	interop.DoSpecialStatusMessage(ctx, client)
	interop.DoUnimplementedMethod(ctx, conn)
	interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
}
