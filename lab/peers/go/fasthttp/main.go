// The command fasthttp serves HTTP with fasthttp.
//
// Without deadlines, which would be a timer per request; header names are taken as they come, as in fasthttp's
// TechEmpower set-up. fasthttp keeps its buffers per connection (ReduceMemoryUsage is off), writes the date once a
// second, and gathers the responses to a pipelined batch.
package main

import (
	"net"

	"github.com/valyala/fasthttp"

	"quoit-lab/peers/internal/handlers"
	"quoit-lab/peers/internal/peer"
)

func main() {
	peer.Run("fasthttp", []string{"http"}, func(arguments peer.Arguments) error {
		server := &fasthttp.Server{
			Name:                          "quoit",
			Handler:                       handlers.FastHTTP,
			DisableHeaderNamesNormalizing: true,
		}
		return peer.Accept(arguments, "fasthttp", "github.com/valyala/fasthttp", func(listener net.Listener) error {
			return server.Serve(listener)
		})
	})
}
