// Package handlers holds the handlers of the frameworks, each served by its own server and on Quoit's loops.
package handlers

import (
	"github.com/valyala/fasthttp"

	"quoit-lab/peers/internal/peer"
)

// FastHTTP answers /plaintext and /json, and beside what is measured /healthz and /bytes/N.
func FastHTTP(context *fasthttp.RequestCtx) {
	if !context.IsGet() {
		context.SetStatusCode(fasthttp.StatusMethodNotAllowed)
		return
	}
	switch string(context.Path()) {
	case "/plaintext":
		context.SetContentType("text/plain")
		context.SetBodyString(peer.Plaintext)
	case "/json":
		context.SetContentType("application/json")
		context.SetBody(peer.JSON())
	case "/healthz":
		context.SetBodyString(peer.Healthy)
	default:
		length, found := peer.BytesAsked(string(context.Path()))
		if !found {
			context.SetStatusCode(fasthttp.StatusNotFound)
			return
		}
		context.SetContentType("application/octet-stream")
		context.SetBodyStream(peer.NewBody(length), int(length))
	}
}
