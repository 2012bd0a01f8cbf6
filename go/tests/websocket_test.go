package tests

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
	"golang.org/x/net/websocket"
)

// converse says things over a WebSocket and checks that they come back.
func converse(t *testing.T, address string) {
	t.Helper()
	socket, err := websocket.Dial("ws://"+address+"/", "", "http://"+address)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, size := range []int{1, 1000, 100_000} {
		sent, came := make([]byte, size), make([]byte, size)
		for index := range sent {
			sent[index] = byte(index)
		}
		go websocket.Message.Send(socket, sent)
		if _, err := io.ReadFull(socket, came); err != nil || string(came) != string(sent) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func echoSocket(socket *websocket.Conn) {
	for {
		var message []byte
		if websocket.Message.Receive(socket, &message) != nil || websocket.Message.Send(socket, message) != nil {
			return
		}
	}
}

func TestWebSocketsUpgradeOverTheListener(t *testing.T) {
	for _, engine := range append(engines, quoit.EngineStd) {
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", quoit.WithEngine(engine))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: websocket.Handler(echoSocket)}
		go server.Serve(listener)
		converse(t, listener.Addr().String())
		server.Close()
	}
}

func TestWebSocketsLeaveTheLoop(t *testing.T) {
	for _, engine := range append(engines, quoit.EngineStd) {
		handler := loophttp.New(websocket.Handler(echoSocket))
		server, err := quoit.Start("127.0.0.1:0", handler, quoit.WithEngine(engine), quoit.WithLoops(1),
			quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		converse(t, server.Addr().String())
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		handler.Close()
	}
}
