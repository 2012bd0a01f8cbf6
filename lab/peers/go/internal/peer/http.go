package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Plaintext is the body of /plaintext.
const Plaintext = "Hello, World!"

type message struct {
	Message string `json:"message"`
}

// JSON is the body of /json, serialised anew as the benchmarks ask for.
func JSON() []byte {
	body, err := json.Marshal(message{Plaintext})
	if err != nil {
		panic("a text always serialises: " + err.Error())
	}
	return body
}

// Responses are the responses of `quoit serve http`, byte for byte, for rivals whose framework brings no HTTP.
type Responses struct {
	plaintext, jsonHead []byte
}

var responses atomic.Pointer[Responses]

// StartResponses writes the responses with the date of now, and again every second.
func StartResponses() {
	write := func() {
		date := time.Now().UTC().Format(http.TimeFormat)
		head := func(contentType string) string {
			return "HTTP/1.1 200 OK\r\nServer: quoit\r\nDate: " + date +
				"\r\nContent-Type: " + contentType + "\r\nContent-Length: "
		}
		responses.Store(&Responses{
			plaintext: fmt.Appendf(nil, "%s%d\r\n\r\n%s", head("text/plain"), len(Plaintext), Plaintext),
			jsonHead:  []byte(head("application/json")),
		})
	}
	write()
	go func() {
		for range time.Tick(time.Second) {
			write()
		}
	}()
}

var (
	endOfHead      = []byte("\r\n\r\n")
	plaintextStart = []byte("GET /plaintext HTTP/1.1\r\n")
	jsonStart      = []byte("GET /json HTTP/1.1\r\n")
)

// Answer appends the responses to all complete requests at the start of input and returns how many bytes of it
// they are. It looks at the request line and for the head's end, as gnet's own benchmark does: the fields are
// not parsed, which is less work than the other rivals do.
func Answer(input, output []byte) (int, []byte) {
	current := responses.Load()
	used := 0
	for {
		end := bytes.Index(input[used:], endOfHead)
		if end < 0 {
			return used, output
		}
		head := input[used:]
		used += end + len(endOfHead)
		switch {
		case bytes.HasPrefix(head, plaintextStart):
			output = append(output, current.plaintext...)
		case bytes.HasPrefix(head, jsonStart):
			body := JSON()
			output = append(output, current.jsonHead...)
			output = strconv.AppendInt(output, int64(len(body)), 10)
			output = append(output, endOfHead...)
			output = append(output, body...)
		default:
			output = append(output, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"...)
		}
	}
}
