package loophttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// responseWriter is an http.ResponseWriter that gathers the response. As that of net/http, it takes the header as it is
// when WriteHeader, or the first Write, is called.
type responseWriter struct {
	handler *Handler
	conn    *quoit.Conn
	known   *state
	request *http.Request
	work    *work // that the request is read by
	raw     int   // bytes of the request

	hijacked bool
	header   http.Header
	status   int      // 0 as long as the header may change
	fields   []byte   // of the header as it was sent, but for those that finish decides
	wished   []string // the handler's Connection
	typed    bool     // it has a Content-Type, or an encoding of which the type is not guessed
	dated    bool
	length   int64    // that the handler has set; -1 for none
	offered  int64    // bytes that were to be written, taken or not
	closing  bool     // the handler wants the connection to close
	coded    bool     // it has a Transfer-Encoding
	identity bool     // which is that the body ends with the connection
	declared []string // trailers
	prefixed bool     // the header had some of http.TrailerPrefix
	names    []string // memory of inOrder

	body *bytes.Buffer
	out  []byte
}

var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ http.Hijacker       = (*responseWriter)(nil)
)

func (w *responseWriter) begin(h *Handler, c *quoit.Conn, known *state, of *work, raw int) {
	w.handler, w.conn, w.known, w.request, w.raw = h, c, known, of.request, raw
	w.work, w.body = of, &of.content
	clear(w.header)
	w.status, w.out, w.fields = 0, w.out[:0], w.fields[:0]
	w.wished = w.wished[:0]
	w.typed, w.dated, w.length, w.offered, w.closing = false, false, -1, 0, false
	w.coded, w.identity = false, false
	w.declared, w.prefixed = w.declared[:0], false
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if w.hijacked {
		w.handler.logf("loophttp: %s %s: WriteHeader(%d) on a hijacked connection", w.request.Method, w.request.URL.Path, status)
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("loophttp: %d is not a status code", status))
	}
	switch {
	case w.status != 0:
		w.handler.logf("loophttp: %s %s: WriteHeader(%d) comes too late, after %d",
			w.request.Method, w.request.URL.Path, status, w.status)
	case status >= 200 || status == http.StatusSwitchingProtocols:
		w.status = status
		w.freeze()
	default:
		w.out = statusLine(w.out, status)
		for _, name := range w.inOrder(w.header) {
			if name != "Content-Length" && name != "Transfer-Encoding" {
				w.out = field(w.out, name, w.header[name])
			}
		}
		w.out = append(w.out, "\r\n"...)
	}
}

// inOrder are the names of a header in the order in which net/http writes them, as long as it is not called again.
func (w *responseWriter) inOrder(header http.Header) []string {
	w.names = w.names[:0]
	for name := range header {
		w.names = append(w.names, name)
	}
	slices.Sort(w.names)
	return w.names
}

// freeze takes the header as it is now.
func (w *responseWriter) freeze() {
	allowed := bodyAllowed(w.status)
	for _, name := range w.inOrder(w.header) {
		values := w.header[name]
		switch name {
		case "Content-Length":
			w.setLength(values)
			continue
		case "Transfer-Encoding":
			// What frames the message is this writer's, but for the end of the connection.
			coding := ""
			if len(values) > 0 {
				coding = values[0]
			}
			w.identity = coding == "identity"
			w.coded = coding != ""
			w.typed = w.typed || w.coded
			continue
		case "Connection":
			w.closing = len(values) > 0 && values[0] == "close"
			w.wished = append(w.wished, values...)
			continue
		case "Content-Type":
			w.typed = true
			if w.status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			w.typed = w.typed || len(values) > 0 && values[0] != ""
		case "Date":
			w.dated = true
		case "Trailer":
			w.declare(values)
		}
		if strings.HasPrefix(name, http.TrailerPrefix) {
			w.prefixed = true
			continue
		}
		w.fields = field(w.fields, name, values)
	}
	if !allowed {
		w.length = -1
	}
	w.identity = w.identity && allowed && w.length < 0
}

// setLength takes the length that the handler has set, if it is one.
func (w *responseWriter) setLength(values []string) {
	if len(values) == 0 || values[0] == "" {
		return
	}
	length, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || length < 0 {
		w.handler.logf("loophttp: %s %s: Content-Length %q is none", w.request.Method, w.request.URL.Path, values[0])
		return
	}
	w.length = length
}

// declare notes the trailers that are announced, but for those that may not be any (RFC 9110, 6.5.1).
func (w *responseWriter) declare(values []string) {
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if mayTrail(name) {
				w.declared = append(w.declared, name)
			}
		}
	}
}

// mayTrail is whether a field may come behind the body: it must not be needed to frame, route, authorize or decode the
// message (RFC 9110, 6.5.1). These are the ones that net/http leaves out.
func mayTrail(name string) bool {
	switch name {
	case "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
		"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding",
		"Www-Authenticate":
		return false
	}
	return !strings.HasPrefix(name, "If-")
}

// admit begins the response, and returns why n bytes of its body may not be written.
func (w *responseWriter) admit(n int) error {
	if w.hijacked {
		if n > 0 {
			w.handler.logf("loophttp: %s %s: Write on a hijacked connection", w.request.Method, w.request.URL.Path)
		}
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	}
	w.offered += int64(n)
	if w.length >= 0 && w.offered > w.length {
		return http.ErrContentLength
	}
	return nil
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if err := w.admit(len(p)); err != nil {
		return 0, err
	}
	return w.body.Write(p)
}

// WriteString implements io.StringWriter.
func (w *responseWriter) WriteString(s string) (int, error) {
	if err := w.admit(len(s)); err != nil {
		return 0, err
	}
	return w.body.WriteString(s)
}

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.hijacked {
		return nil, nil, http.ErrHijacked
	}
	if w.status != 0 {
		return nil, nil, errors.New("loophttp: a response was begun")
	}
	source := &w.work.source
	if source.bytes.Len() > 0 {
		// The body stays the handler's, but the memory that it came in goes.
		rest := make([]byte, source.bytes.Len())
		_, _ = source.bytes.Read(rest) // all of it
		source.bytes.Reset(rest)
	}
	w.conn.Discard(w.raw)
	w.known.times.Forget(w.conn)
	n, err := w.conn.Detach()
	if err != nil {
		return nil, nil, err
	}
	w.known.requests.Need, w.hijacked = -1, true
	// As with net/http, what was not read of the body comes first.
	source.behind = n
	return n, bufio.NewReadWriter(w.work.reader, bufio.NewWriter(n)), nil
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// bufferBeforeChunking is how much of a body net/http gathers before it sends the header, after which it may still send
// trailers that nobody has announced.
const bufferBeforeChunking = 2048

// finish writes the response to out, and returns whether the connection closes after it, as it does when it is to end.
func (w *responseWriter) finish(ends bool) (closes bool) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	body, allowed, head := w.body.Bytes(), bodyAllowed(w.status), w.request.Method == http.MethodHead
	trailers := w.trailers(len(body))
	chunked := trailers != nil && allowed && !head && !w.identity
	// Other than as many bytes as were announced end the connection: the client may wait for them.
	wrong := !head && w.length >= 0 && w.length != w.offered
	closes = ends || w.closing || w.request.Close || w.identity && !head
	out := append(statusLine(w.out, w.status), w.fields...)
	switch {
	case chunked:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case w.length >= 0 && !w.coded:
		out = contentLength(out, w.length)
	case allowed && trailers == nil && !w.identity && (!head || len(body) > 0 && !w.coded):
		// Of a HEAD only the handler may know how long the body would be.
		out = contentLength(out, int64(len(body)))
	}
	if !w.typed && allowed && len(body) > 0 {
		out = append(out, "Content-Type: "...)
		out = append(out, http.DetectContentType(body)...)
		out = append(out, "\r\n"...)
	}
	if !w.dated {
		out = append(out, "Date: "...)
		out = append(out, date()...)
		out = append(out, "\r\n"...)
	}
	if closes && !saysClose(w.wished) {
		out = append(out, "Connection: close\r\n"...) // instead of what the handler wants
	} else {
		out = field(out, "Connection", w.wished)
	}
	out = append(out, "\r\n"...)
	switch {
	case chunked:
		if len(body) > 0 {
			out = strconv.AppendInt(out, int64(len(body)), 16)
			out = append(out, "\r\n"...)
			out = append(out, body...)
			out = append(out, "\r\n"...)
		}
		out = append(out, "0\r\n"...)
		for _, name := range w.inOrder(trailers) {
			out = field(out, name, trailers[name])
		}
		out = append(out, "\r\n"...)
	case allowed && !head:
		out = append(out, body...)
	}
	w.out = out
	w.request = nil
	return closes || wrong
}

// saysClose is whether a Connection field says already that the connection closes.
func saysClose(values []string) bool {
	return len(values) > 0 && slices.ContainsFunc(strings.FieldsFunc(values[0], func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t'
	}), func(token string) bool { return strings.EqualFold(token, "close") })
}

// trailers are those of a body of so many bytes: nil if there can be none, and net/http would not chunk it for them.
func (w *responseWriter) trailers(body int) http.Header {
	var trailers http.Header
	announced := w.prefixed || len(w.declared) > 0
	if !announced && (body <= bufferBeforeChunking || w.length >= 0) {
		return nil
	}
	for name, values := range w.header {
		if name, prefixed := strings.CutPrefix(name, http.TrailerPrefix); prefixed {
			if trailers == nil {
				trailers = make(http.Header)
			}
			trailers[name] = values
		}
	}
	for _, name := range w.declared {
		if values := w.header[name]; len(values) > 0 {
			if trailers == nil {
				trailers = make(http.Header)
			}
			trailers[name] = values
		}
	}
	if trailers == nil && announced {
		trailers = http.Header{}
	}
	return trailers
}

// statusLine appends the first line of a response.
func statusLine(out []byte, status int) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	if text := http.StatusText(status); text != "" {
		out = append(out, text...)
	} else {
		out = append(out, "status code "...)
		out = strconv.AppendInt(out, int64(status), 10)
	}
	return append(out, "\r\n"...)
}

// field appends a field, unless its name is none.
func field(out []byte, name string, values []string) []byte {
	if !validName(name) {
		return out
	}
	for _, value := range values {
		out = append(out, name...)
		out = append(out, ": "...)
		out = append(out, strings.Trim(cleaner.Replace(value), " \t")...)
		out = append(out, "\r\n"...)
	}
	return out
}

func contentLength(out []byte, length int64) []byte {
	out = append(out, "Content-Length: "...)
	out = strconv.AppendInt(out, length, 10)
	return append(out, "\r\n"...)
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
