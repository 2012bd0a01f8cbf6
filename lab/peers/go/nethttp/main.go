// The command nethttp serves HTTP with the standard library's net/http.
//
// Without deadlines, which would be a timer per request. It writes the date itself.
package main

import (
	"net"
	"net/http"

	"quoit-lab/peers/internal/handlers"
	"quoit-lab/peers/internal/peer"
)

func main() {
	peer.Run("nethttp", []string{"http"}, func(arguments peer.Arguments) error {
		server := &http.Server{Handler: http.HandlerFunc(handlers.NetHTTP)}
		return peer.Accept(arguments, "nethttp", "", func(listener net.Listener) error {
			return server.Serve(listener)
		})
	})
}
