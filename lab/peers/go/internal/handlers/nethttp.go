package handlers

import (
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

// NetHTTP answers /plaintext and /json. The fields are set with their names in the canonical form, straight into the
// map, and the length is given, so that net/http neither forms the one nor counts the other.
func NetHTTP(writer http.ResponseWriter, request *http.Request) {
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
