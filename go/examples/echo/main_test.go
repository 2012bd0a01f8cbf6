package main

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

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

func TestASignalEndsItBehindWhatHasCome(t *testing.T) {
	process := exampletest.Run(t)
	connection, err := net.Dial("tcp", process.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	sent := bytes.Repeat([]byte("hello"), 2000)
	connection.Write(sent)
	// All of it has come where some of it has come back: loopback delivers it whole.
	first := make([]byte, 1)
	if _, err := io.ReadFull(connection, first); err != nil {
		t.Fatal(err)
	}
	process.Terminate(t)
	if rest, err := io.ReadAll(connection); err != nil || !bytes.Equal(append(first, rest...), sent) {
		t.Errorf("%d of %d bytes, %v", 1+len(rest), len(sent), err)
	}
	connection.Close()
	process.Ends(t)
}
