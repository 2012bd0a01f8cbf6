package main

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestEcho(t *testing.T) {
	connection, err := net.Dial("tcp", exampletest.Start(t, serve).String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	sent := bytes.Repeat([]byte("hello"), 500_000)
	go func() {
		connection.Write(sent)
		connection.(*net.TCPConn).CloseWrite()
	}()
	if came, err := io.ReadAll(connection); err != nil || !bytes.Equal(came, sent) {
		t.Errorf("%d of %d bytes, %v", len(came), len(sent), err)
	}
}
