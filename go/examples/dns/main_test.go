package main

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The resolver of package net is the client.
func TestDNS(t *testing.T) {
	at := exampletest.Start(t, serve)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", at.String())
	}}
	found, err := resolver.LookupNetIP(t.Context(), "ip4", "one.example.")
	if err != nil || len(found) != 1 || found[0].String() != "192.0.2.1" {
		t.Error(found, err)
	}
	var failure *net.DNSError
	if _, err := resolver.LookupNetIP(t.Context(), "ip4", "none.example."); !errors.As(err, &failure) || !failure.IsNotFound {
		t.Error(err)
	}
	if reply := answer([]byte("what?")); reply != nil {
		t.Errorf("%q", reply)
	}
}

func TestASignalEndsIt(t *testing.T) {
	process := exampletest.Run(t)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", process.Address)
	}}
	if found, err := resolver.LookupNetIP(t.Context(), "ip4", "two.example."); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
	process.Terminate(t)
	process.Ends(t)
}
