package loophttp_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
)

// rawRequests are what programs before a server may read otherwise than it (RFC 9112, 11.2), and what ends a connection.
func rawRequests() []string {
	const host, end = "Host: x\r\n", "\r\n"
	chunked := func(chunks string) string {
		return "POST /chunked HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" + chunks
	}
	with := func(fields, body string) string { return "POST /with HTTP/1.1\r\n" + host + fields + end + body }
	target := func(line string) string { return line + end + host + end }
	requests := []string{
		with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
		with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"),
		with("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", "0\r\n\r\n"),
		with("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"),
		with("Content-Length: 3\r\ncontent-length: 4\r\n", "abcd"),
		with("Content-Length: 3,3\r\n", "abc"),
		with("Content-Length: \r\n", ""),
		with("Content-Length: 0003\r\n", "abc"),
		with("Content-Length: -0\r\n", ""),
		with("Content-Length: 3_0\r\n", "abc"),
		with("Content-Length: 9223372036854775808\r\n", "abc"),
		with("Content-Length: 18446744073709551619\r\n", "abc"),
		with("Content-Length: 3\r\n X: y\r\n", "abc"),
		with("X: y\r\n\tfolded\r\nContent-Length: 0\r\n", ""),
		with("Content-Length : 3\r\n", "abc"),
		with("Content-Length\t: 3\r\n", "abc"),
		with("Content-Length:3\v\r\n", "abc"),
		with("Content-Length:\u00a03\r\n", "abc"),
		with("\x00Content-Length: 3\r\n", "abc"),
		with("Content-Length: 3\n", "abc"),
		with("Content-Length: 3\r", "abc"),
		with("X: a\rContent-Length: 3\r\n", "abc"),
		with("X: a\nContent-Length: 3\r\n", "abc"),
		with("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abc"),
		with("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
		with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
		with("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"),
		with("Transfer-Encoding:\r\n", ""),
		with("Transfer_Encoding: chunked\r\nContent-Length: 3\r\n", "abc"),
		with("Trailer: Content-Length\r\nContent-Length: 3\r\n", "abc"),
		with("Trailer: X-T\r\nContent-Length: 3\r\n", "abc"),
		with("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"),
		with("Expect: 100-Continue\r\nContent-Length: 0\r\n", ""),
		with("Expect: nothing\r\n", ""),
		with("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", ""),
		with("Connection: close, x\r\n", ""),
		with("Connection: x, CLOSE\r\n", ""),
		with("Connection: x\r\nConnection: close\r\n", ""),
		with("Connection: \"close\"\r\n", ""),
		with("Connection: closed\r\n", ""),
		chunked("3\r\nabc\r\n0\r\n\r\n"),
		chunked("03\r\nabc\r\n0\r\n\r\n"),
		chunked("3;x=\"y\r\nabc\r\n0\r\n\r\n"),
		chunked("3 \r\nabc\r\n0\r\n\r\n"),
		chunked(" 3\r\nabc\r\n0\r\n\r\n"),
		chunked("+3\r\nabc\r\n0\r\n\r\n"),
		chunked("-3\r\nabc\r\n0\r\n\r\n"),
		chunked("0x3\r\nabc\r\n0\r\n\r\n"),
		chunked("3\nabc\n0\n\n"),
		chunked("3\r\nabc0\r\n\r\n"),
		chunked("3\r\nabcd\r\n0\r\n\r\n"),
		chunked("10000000000000003\r\nabc\r\n0\r\n\r\n"),
		chunked("\r\n"),
		chunked("0\r\nX-T: 1\r\nContent-Length: 3\r\n\r\n"),
		chunked("0\r\n folded\r\n\r\n"),
		chunked("0\r\nHost : y\r\n\r\n"),
		target("GET http://y/absolute HTTP/1.1"),
		target("GET https://y:99/absolute?a HTTP/1.1"),
		target("GET http:///none HTTP/1.1"),
		target("GET y:80 HTTP/1.1"),
		target("CONNECT y:80 HTTP/1.1"),
		target("CONNECT /path HTTP/1.1"),
		target("OPTIONS * HTTP/1.1"),
		target("GET * HTTP/1.1"),
		target("GET //y/z HTTP/1.1"),
		target("GET /%00 HTTP/1.1"),
		target("GET /a\x7f HTTP/1.1"),
		target("GET /a\tb HTTP/1.1"),
		target("GET /a HTTP/1.1 HTTP/1.1"),
		target("GET /a HTTP/1.1\t"),
		target("GET  /a HTTP/1.1"),
		target("GET /a HTTP/1.10"),
		target("GET /a HTTP/01.1"),
		target("GET /a HTTP/1,1"),
		target("GET /a HTTP/2.0"),
		target("GET /a HTTP/3.0"),
		target("GET /a HTTP/0.9"),
		target("GET /a"),
		target(" GET /a HTTP/1.1"),
		target("GE(T /a HTTP/1.1"),
		target("PRI * HTTP/2.0"),
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x@y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x,y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
		"GET http://y/ HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
		"HEAD /body HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\n",
		"GET / HTTP/1.1\rHost: x\r\r",
		"GET / HTTP/1.1\r\nHost: x\r\n\n",
		"GET / HTTP/1.1\r\n" + host + ": y\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "no colon\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X: \x00\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "X: \x7f\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "Cookie: a\r\nCookie: b\r\nX-A: 1\r\nx-a: 2\r\n\r\n",
		"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
	}
	for _, status := range []int{199, 204, 205, 304, 404, 500, 999} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			requests = append(requests, fmt.Sprintf("%s /status?%d HTTP/1.1\r\nHost: x\r\n\r\n", method, status))
		}
	}
	return requests
}

var dateField = regexp.MustCompile(`Date: [^\r]*\r\n`)

// sendRaw returns what a server sends for these pieces and for another request behind them.
func sendRaw(t *testing.T, address net.Addr, pieces ...string) string {
	c := dial(t, address)
	defer c.Close()
	for _, piece := range pieces {
		if _, err := io.WriteString(c.Conn, piece); err != nil {
			break // the server has refused the rest
		}
	}
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	var came bytes.Buffer
	_, _ = io.Copy(&came, c.Conn) // a reset may come behind it
	return dateField.ReplaceAllString(came.String(), "")
}

// What servers send is the same to the byte, but for where the Date is.
func TestRawResponsesAsNetHTTP(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var status int
		if _, none := fmt.Sscan(r.URL.RawQuery, &status); none == nil {
			for _, name := range []string{"X-Method", "Vary", "A-First", "Zed", "Content-Language", "Etag", "Link"} {
				w.Header()[name] = []string{r.Method, name}
			}
			w.WriteHeader(status)
		}
		fmt.Fprintf(w, "%s %q %q %q %q %v %d %v %v %v", r.Method, r.RequestURI, r.URL, r.Host, body, err, r.ContentLength,
			r.TransferEncoding, r.Close, r.Trailer)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range r.Header {
				if !yield(name) {
					return
				}
			}
		}) {
			fmt.Fprintf(w, " %s=%q", name, r.Header[name])
		}
	}
	stock := serveStock(t, quietServer(handler))
	requests := rawRequests()
	wanted := make([]string, len(requests))
	for index, request := range requests {
		wanted[index] = sendRaw(t, stock, request+strings.ReplaceAll(plainGet, " / ", " /behind "))
	}
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		ours := serve(t, engine, loophttp.New(http.HandlerFunc(handler), loophttp.WithServer(quietServer(nil))))
		for index, request := range requests {
			behind := request + strings.ReplaceAll(plainGet, " / ", " /behind ")
			for cut := range len(behind) {
				if seen := sendRaw(t, ours, behind[:cut], behind[cut:]); seen != wanted[index] {
					t.Errorf("%q cut at %d:\nstock %q\nours  %q", request, cut, wanted[index], seen)
					break
				}
			}
		}
	})
}
