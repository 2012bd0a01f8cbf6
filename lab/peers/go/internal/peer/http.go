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

// Healthy is the body of /healthz.
const Healthy = "ok"

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
	healthStart    = []byte("GET /healthz HTTP/1.1\r\n")
)

// Answer appends the responses to all complete requests at the start of input and returns how many bytes of it
// they are. It stops at a request that is the caller's own to answer: own, which may be nil, tells them, and is asked
// only about what is not measured.
func Answer(input, output []byte, own func(request []byte) bool) (int, []byte) {
	used := 0
	for {
		length, longer := AnswerOne(input[used:], output, own)
		if length == 0 {
			return used, output
		}
		used, output = used+length, longer
	}
}

// AnswerOne appends the response to the request at the start of input and returns how many bytes of it that is:
// none if it has not come completely or is the caller's own. It looks at the request line and for the head's end, as gnet's own benchmark
// does: the fields are not parsed, which is less work than the other rivals do.
func AnswerOne(input, output []byte, own func(request []byte) bool) (int, []byte) {
	end := bytes.Index(input, endOfHead)
	if end < 0 {
		return 0, output
	}
	current := responses.Load()
	switch {
	case bytes.HasPrefix(input, plaintextStart):
		output = append(output, current.plaintext...)
	case bytes.HasPrefix(input, jsonStart):
		body := JSON()
		output = append(output, current.jsonHead...)
		output = strconv.AppendInt(output, int64(len(body)), 10)
		output = append(output, endOfHead...)
		output = append(output, body...)
	case bytes.HasPrefix(input, healthStart):
		output = append(output, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"+Healthy...)
	case own != nil && own(input):
		return 0, output
	default:
		output = append(output, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"...)
	}
	return end + len(endOfHead), output
}
