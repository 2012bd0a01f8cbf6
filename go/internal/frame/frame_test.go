package frame

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	const host = "Host: x\r\n"
	for _, test := range []struct {
		bytes string
		want  Verdict
	}{
		{"", More},
		{"GET / HTTP/1.1\r\n" + host, More},
		{"GET / HTTP/1.1\r\n" + host + "\r\n", Whole},
		{"POST / HTTP/1.1\r\n" + host + "content-LENGTH: 3\r\n\r\nab", More},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc", Whole},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", Move},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", Move},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 9999\r\n\r\n", Move},
		{"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", Move},
		{"POST / HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", Move},
		{"GET / HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n\r\n", Move},
		{"GET / HTTP/1.1\r\n\r\n", Move},
		{"GET / HTTP/1.1\r\n" + host + host + "\r\n", Move},
		{"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n", Move},
		{"GET / HTTP/1.1\r\n" + host + "a\nb: c\r\n\r\n", Move},
		{"GET / HTTP/1.0\r\n" + host + "\r\n", Move},
		{"CONNECT x:1 HTTP/1.1\r\n" + host + "\r\n", Move},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Move},
		{"\x16\x03\x01", Move},
		{"GET /" + strings.Repeat("x", 2000), Move},
	} {
		if got, _ := Scan([]byte(test.bytes), 1000); got != test.want {
			t.Errorf("%q: %d, not %d", test.bytes, got, test.want)
		}
	}
}

func TestAsksForMore(t *testing.T) {
	for fields, want := range map[string]bool{
		"\r\n":            false,
		"Host: x\r\n\r\n": false,
		"User-Agent: upgrade: x\r\nExpected: 1\r\nX-Upgrade: h2c\r\n\r\n": false,
		"EXPECT: 100-continue\r\n\r\n":                                    true,
		"Host: x\r\nupgrade:websocket\r\n\r\n":                            true,
	} {
		if got := AsksForMore([]byte(fields)); got != want {
			t.Errorf("%q: %v", fields, got)
		}
	}
}

// FuzzWhole checks that the framework takes for a request exactly the bytes that Scan does, or refuses them.
func FuzzWhole(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, view []byte) {
		verdict, whole := Scan(view, 4096)
		if verdict != Whole {
			return
		}
		source := bytes.NewReader(view)
		reader := bufio.NewReaderSize(source, 16)
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			t.Fatalf("%q: %v", view, err)
		}
		if used := len(view) - source.Len() - reader.Buffered(); used != whole {
			t.Fatalf("%q: the framework takes %d bytes, Scan %d", view, used, whole)
		}
	})
}
