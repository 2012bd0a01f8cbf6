package loophttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// responseWriter is an http.ResponseWriter that gathers the response.
type responseWriter struct {
	handler *Handler
	conn    *quoit.Conn
	known   *state
	request *http.Request
	raw     int // bytes of the request

	header http.Header
	status int
	body   *bytes.Buffer
	out    []byte
}

var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ http.Hijacker       = (*responseWriter)(nil)
)

func (w *responseWriter) begin(
	h *Handler, c *quoit.Conn, known *state, request *http.Request, body *bytes.Buffer, raw int,
) {
	w.handler, w.conn, w.known, w.request, w.body, w.raw = h, c, known, request, body, raw
	clear(w.header)
	w.status, w.out = 0, w.out[:0]
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses are left out.
func (w *responseWriter) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("loophttp: %d is no status code", status))
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	return w.body.Write(p)
}

// WriteString implements io.StringWriter.
func (w *responseWriter) WriteString(s string) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	return w.body.WriteString(s)
}

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.status != 0 || w.known.need < 0 {
		return nil, nil, errors.New("loophttp: a response was begun, or the connection was hijacked before")
	}
	w.conn.Discard(w.raw)
	n, err := w.conn.Detach()
	if err != nil {
		return nil, nil, err
	}
	w.known.need = -1
	return n, bufio.NewReadWriter(bufio.NewReader(n), bufio.NewWriter(n)), nil
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// finish writes the response to out, and answers whether the connection closes after it, as it does when it is to end.
func (w *responseWriter) finish(ends bool) (closes bool) {
	w.WriteHeader(http.StatusOK)
	body := w.body.Bytes()
	closes = ends || w.request.Close
	if values := w.header["Connection"]; len(values) > 0 {
		closes = closes || hasToken(values[0], "close")
	}
	out := append(w.out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(w.status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(w.status)...)
	out = append(out, "\r\n"...)
	allowed := bodyAllowed(w.status)
	// Of a HEAD only the handler may know how long the body would be.
	counted := allowed && (w.request.Method != http.MethodHead || len(body) > 0)
	if counted {
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, int64(len(body)), 10)
		out = append(out, "\r\n"...)
	}
	if _, set := w.header["Content-Type"]; !set && allowed && len(body) > 0 && w.header.Get("Content-Encoding") == "" {
		out = append(out, "Content-Type: "...)
		out = append(out, http.DetectContentType(body)...)
		out = append(out, "\r\n"...)
	}
	if _, set := w.header["Date"]; !set {
		out = append(out, "Date: "...)
		out = append(out, date()...)
		out = append(out, "\r\n"...)
	}
	if closes {
		out = append(out, "Connection: close\r\n"...)
	}
	for name, values := range w.header {
		switch name {
		case "Transfer-Encoding", "Connection":
			continue // what frames the message is this writer's
		case "Content-Length":
			if counted || w.status == http.StatusNoContent {
				continue
			}
		}
		if !validName(name) {
			continue
		}
		for _, value := range values {
			out = append(out, name...)
			out = append(out, ": "...)
			out = append(out, cleaner.Replace(value)...)
			out = append(out, "\r\n"...)
		}
	}
	out = append(out, "\r\n"...)
	if w.request.Method != http.MethodHead && allowed {
		out = append(out, body...)
	}
	w.out = out
	w.request = nil
	return closes
}

// cleaner keeps a value from ending its line, as net/http does.
var cleaner = strings.NewReplacer("\n", " ", "\r", " ")

// validName is whether a field's name is a token (RFC 9110, 5.6.2).
func validName(name string) bool {
	for index := range len(name) {
		c := name[index]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

func hasToken(list, token string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// datedSecond is a Date field's value for one second.
type datedSecond struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[datedSecond]

func date() string {
	now := time.Now()
	if last := lastDate.Load(); last != nil && last.second == now.Unix() {
		return last.text
	}
	made := &datedSecond{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(made)
	return made.text
}
