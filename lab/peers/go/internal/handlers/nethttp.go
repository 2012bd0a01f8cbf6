package handlers

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"quoit-lab/peers/internal/peer"
)

// The values are shared: net/http only reads them.
var (
	serverName      = []string{"quoit"}
	text            = []string{"text/plain"}
	object          = []string{"application/json"}
	octets          = []string{"application/octet-stream"}
	plaintext       = []byte(peer.Plaintext)
	plaintextLength = []string{strconv.Itoa(len(plaintext))}
)

// NetHTTP answers /plaintext and /json, and beside what is measured /healthz and /bytes/N. The fields are set with their names in the canonical form, straight into the
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
	case "/healthz":
		_, _ = io.WriteString(writer, peer.Healthy)
	default:
		length, found := peer.BytesAsked(request.URL.Path)
		if !found {
			writer.WriteHeader(http.StatusNotFound)
			return
		}
		header := writer.Header()
		header["Content-Type"] = octets
		header["Content-Length"] = []string{strconv.FormatInt(length, 10)}
		_, _ = peer.NewBody(length).WriteTo(writer)
	}
}

// Streams is whether NetHTTP answers by writing for as long as the peer reads, which on a loop would keep it from
// all others.
func Streams(request *http.Request) bool { return strings.HasPrefix(request.URL.Path, peer.BytesPath) }

func respond(writer http.ResponseWriter, contentType, length []string, body []byte) {
	header := writer.Header()
	header["Server"] = serverName
	header["Content-Type"] = contentType
	header["Content-Length"] = length
	// An error means that the peer has gone, which net/http sees for itself.
	_, _ = writer.Write(body)
}
