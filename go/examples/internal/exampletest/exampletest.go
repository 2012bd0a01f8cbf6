// Package exampletest starts examples for their tests.
package exampletest

import (
	"context"
	"net"
	"testing"
)

// Start starts an example for a test, and ends it with the test.
func Start(t *testing.T, serve func(ctx context.Context, address string, ready func(net.Addr)) error) net.Addr {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- serve(ctx, "127.0.0.1:0", func(at net.Addr) { listening <- at }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-listening:
		return at
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return nil
	}
}
