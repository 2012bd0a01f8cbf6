// The command nethttp serves HTTP with the standard library's net/http.
//
// Without deadlines, which would be a timer a request. The fields are set with their names in the canonical
// form, straight into the map, and the length is given, so that net/http neither forms the one nor counts the
// other. It writes the date itself.
package main

import (
	"net"
	"net/http"
	"strconv"

	"quoit-lab/peers/internal/peer"
)

// The values are shared: net/http only reads them.
var (
	serverName      = []string{"quoit"}
	text            = []string{"text/plain"}
	object          = []string{"application/json"}
	plaintext       = []byte(peer.Plaintext)
	plaintextLength = []string{strconv.Itoa(len(plaintext))}
)

func main() {
	peer.Run("nethttp", []string{"http"}, func(arguments peer.Arguments) error {
		server := &http.Server{Handler: http.HandlerFunc(handle)}
		return peer.Accept(arguments, "nethttp", "", func(listener net.Listener) error {
			return server.Serve(listener)
		})
	})
}

func handle(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet {
		writer.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	switch request.URL.Path {
	case "/plaintext":
		respond(writer, text, plaintextLength, plaintext)
	case "/json":
		body := peer.JSON()
		respond(writer, object, []string{strconv.Itoa(len(body))}, body)
	default:
		writer.WriteHeader(http.StatusNotFound)
	}
}

func respond(writer http.ResponseWriter, contentType, length []string, body []byte) {
	header := writer.Header()
	header["Server"] = serverName
	header["Content-Type"] = contentType
	header["Content-Length"] = length
	// An error means that the peer has gone, which net/http sees for itself.
	_, _ = writer.Write(body)
}
