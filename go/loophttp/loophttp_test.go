package loophttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/required"
	"github.com/quoit-io/quoit/go/loophttp"
)

const patience = 20 * time.Second

// routes answers where each request was served: on the loop, whose ResponseWriter cannot flush, or on a goroutine.
func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/where", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if _, streams := w.(http.Flusher); streams {
			fmt.Fprint(w, "goroutine")
		} else {
			fmt.Fprint(w, "loop")
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/x-echo")
		w.Header().Set("X-Remote", r.RemoteAddr)
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 3<<20)) })
	mux.HandleFunc("/none", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/split", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Evil", "a\r\nb: c") })
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("as asked") })
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		go func() {
			fmt.Fprint(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
			connection.Close()
		}()
	})
	return mux
}

func start(t *testing.T, engine quoit.Engine, options ...loophttp.Option) net.Addr {
	t.Helper()
	return serve(t, engine, loophttp.New(routes(), append([]loophttp.Option{
		loophttp.WithServer(&http.Server{ErrorLog: log.New(io.Discard, "", 0)}),
	}, options...)...))
}

// serve runs a handler on one loop until the test is over.
func serve(t *testing.T, engine quoit.Engine, handler *loophttp.Handler, options ...quoit.Option) net.Addr {
	t.Helper()
	server, err := quoit.Start("127.0.0.1:0", handler, append([]quoit.Option{quoit.WithEngine(engine), quoit.WithLoops(1),
		quoit.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
	if err != nil {
		required.Skip(t, engine, err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		server.Shutdown(over)
		handler.Close()
	})
	return server.Addr()
}

func onEngines(t *testing.T, test func(t *testing.T, engine quoit.Engine)) {
	for _, engine := range []quoit.Engine{quoit.EngineURing, quoit.EngineEpoll, quoit.EngineStd} {
		t.Run(engine.String(), func(t *testing.T) { test(t, engine) })
	}
}

// client sends raw requests and reads the answers.
type client struct {
	net.Conn
	*bufio.Reader
}

func (c client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func dial(t *testing.T, address net.Addr) client {
	t.Helper()
	connection, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(patience))
	return client{connection, bufio.NewReader(connection)}
}

func (c client) answer(t *testing.T, method string) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestWhereRequestsAreServed(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine, loophttp.Blocking(func(r *http.Request) bool { return r.URL.RawQuery == "slow" }))
		for request, want := range map[string]string{
			"GET /where HTTP/1.1\r\nHost: x\r\n\r\n":                                                          "loop",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":                                 "loop",
			"GET /where?slow HTTP/1.1\r\nHost: x\r\n\r\n":                                                     "goroutine",
			"POST /where HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n":        "goroutine",
			"GET /where HTTP/1.0\r\n\r\n":                                                                     "goroutine",
			"GET /where HTTP/1.1\r\nHost: x\r\nUpgrade: none\r\nConnection: upgrade\r\n\r\n":                  "goroutine",
			"POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000): "goroutine",
		} {
			c := dial(t, address)
			// A request before it shows that what was on the loop may leave it.
			io.WriteString(c.Conn, "GET /where HTTP/1.1\r\nHost: x\r\n\r\n"+request)
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Errorf("%.60q: the one before was served on a %s", request, body)
			}
			if response, body := c.answer(t, "GET"); body != want {
				t.Errorf("%.60q: %s, not %s (%s)", request, body, want, response.Status)
			}
		}
	})
}

func TestRequestsInPieces(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		const request = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
		for cut := 1; cut < len(request); cut += 7 {
			io.WriteString(c.Conn, request[:cut])
			io.WriteString(c.Conn, request[cut:])
			response, body := c.answer(t, "POST")
			if body != "hello" || response.Header.Get("Content-Type") != "text/x-echo" ||
				response.Header.Get("X-Remote") != c.LocalAddr().String() || response.Header.Get("Date") == "" {
				t.Fatalf("%q, %v", body, response.Header)
			}
		}
	})
}

func TestPipelinedResponsesKeepTheirOrder(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		var requests bytes.Buffer
		for number := range 500 {
			text := fmt.Sprint(number)
			fmt.Fprintf(&requests, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
		go c.Conn.Write(requests.Bytes())
		for number := range 500 {
			if _, body := c.answer(t, "POST"); body != fmt.Sprint(number) {
				t.Fatalf("%d: %q", number, body)
			}
		}
	})
}

func TestLineEndsBehindAPost(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		const post = "POST /where HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
		const get = "GET /where HTTP/1.1\r\nHost: x\r\n\r\n"
		io.WriteString(c.Conn, post+"\r\n"+post+"\r\n\r\n"+get+"\r\n"+get)
		for range 3 {
			if _, body := c.answer(t, "GET"); body != "loop" {
				t.Error(body)
			}
		}
		if response, _ := c.answer(t, "GET"); response.StatusCode != 400 {
			t.Error(response.Status)
		}
	})
}

func TestLargeResponsesLeaveTheLoop(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine)
		c := dial(t, address)
		io.WriteString(c.Conn, "GET /large HTTP/1.1\r\nHost: x\r\n\r\nGET /where HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, body := c.answer(t, "GET"); len(body) != 3<<20 {
			t.Error(len(body))
		}
		if _, body := c.answer(t, "GET"); body != "goroutine" {
			t.Error(body)
		}
		last := dial(t, address)
		io.WriteString(last.Conn, "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if _, body := last.answer(t, "GET"); len(body) != 3<<20 {
			t.Error(len(body))
		}
		if _, err := last.ReadByte(); err != io.EOF {
			t.Error(err)
		}
	})
}

func TestResponsesWithoutABody(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		c := dial(t, start(t, engine))
		io.WriteString(c.Conn, "HEAD /where HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n"+
			"GET /missing HTTP/1.1\r\nHost: x\r\n\r\nGET /split HTTP/1.1\r\nHost: x\r\n\r\n")
		if response, _ := c.answer(t, "HEAD"); response.ContentLength != 4 {
			t.Error(response.ContentLength)
		}
		if response, _ := c.answer(t, "GET"); response.StatusCode != 204 || response.Header.Get("Content-Length") != "" {
			t.Error(response.Status, response.Header)
		}
		if response, _ := c.answer(t, "GET"); response.StatusCode != 404 {
			t.Error(response.Status)
		}
		if response, _ := c.answer(t, "GET"); response.Header.Get("X-Evil") != "a  b: c" || response.Header.Get("b") != "" {
			t.Error(response.Header)
		}
	})
}

func TestMalformedRequestsAreAnswered(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine)
		for _, request := range []string{
			"GET / HTTP/1.1\r\n\r\n", "nonsense\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nbad name: y\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		} {
			c := dial(t, address)
			io.WriteString(c.Conn, request)
			if response, _ := c.answer(t, "GET"); response.StatusCode != 400 {
				t.Errorf("%q: %s", request, response.Status)
			}
		}
	})
}

func TestPanicsAndHijacks(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		address := start(t, engine)
		for _, path := range []string{"/panic", "/abort"} {
			c := dial(t, address)
			fmt.Fprintf(c.Conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
			if _, err := c.ReadByte(); err == nil {
				t.Errorf("%s: an answer has come", path)
			}
		}
		c := dial(t, address)
		io.WriteString(c.Conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, body := c.answer(t, "GET"); body != "mine" {
			t.Error(body)
		}
		if _, err := c.ReadByte(); err != io.EOF {
			t.Error(err)
		}
		closing := dial(t, address)
		io.WriteString(closing.Conn, "GET /where HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if response, body := closing.answer(t, "GET"); body != "loop" || !response.Close {
			t.Error(body, response.Header)
		}
		if _, err := closing.ReadByte(); err != io.EOF {
			t.Error(err)
		}
	})
}
