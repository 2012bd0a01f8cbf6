package fasthttp_test

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/quoit-io/quoit/go/internal/oracle"
	"github.com/valyala/fasthttp"
)

func post(length int) string {
	return fmt.Sprintf("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length) + strings.Repeat("b", length)
}

const (
	get       = "GET /g HTTP/1.1\r\nHost: x\r\n\r\n"
	chunks    = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	expects   = "POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
	multipart = "POST /m HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 59\r\n\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--b--\r\n"
	noForm = "POST /m HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 3\r\n\r\nabc"
)

// What a server's options change for its clients and handlers is the same on the loop.
func TestOptionsOfServersAsFasthttp(t *testing.T) {
	long := func(bytes int) string {
		return "GET /l HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", bytes) + "\r\n\r\n"
	}
	for name, of := range map[string]struct {
		configure func(s *fasthttp.Server)
		requests  []string
	}{
		"none":                         {func(*fasthttp.Server) {}, []string{multipart, noForm}},
		"MaxRequestBodySize":           {func(s *fasthttp.Server) { s.MaxRequestBodySize = 100 }, []string{post(100), post(101), chunks}},
		"StreamRequestBody":            {func(s *fasthttp.Server) { s.StreamRequestBody = true }, []string{post(0), post(100), chunks}},
		"StreamRequestBody, no form":   {func(s *fasthttp.Server) { s.StreamRequestBody, s.DisablePreParseMultipartForm = true, true }, []string{multipart, noForm}},
		"DisablePreParseMultipartForm": {func(s *fasthttp.Server) { s.DisablePreParseMultipartForm = true }, []string{multipart, noForm}},
		"a small ReadBufferSize":       {func(s *fasthttp.Server) { s.ReadBufferSize = 512 }, []string{long(476), long(477), long(478), long(479), long(480), long(481), long(600)}},
		"a large ReadBufferSize":       {func(s *fasthttp.Server) { s.ReadBufferSize = 16 << 10 }, []string{long(5000), long(20000)}},
		"MaxRequestsPerConn":           {func(s *fasthttp.Server) { s.MaxRequestsPerConn = 2 }, []string{post(1)}},
		"MaxRequestsPerConn of one":    {func(s *fasthttp.Server) { s.MaxRequestsPerConn = 1 }, []string{post(1), chunks}},
		"DisableKeepalive":             {func(s *fasthttp.Server) { s.DisableKeepalive = true }, []string{post(1), chunks}},
		"ReduceMemoryUsage":            {func(s *fasthttp.Server) { s.ReduceMemoryUsage = true }, []string{post(1), chunks}},
		"GetOnly":                      {func(s *fasthttp.Server) { s.GetOnly = true }, []string{post(1), chunks, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"}},
		"Name":                         {func(s *fasthttp.Server) { s.Name = "n" }, []string{chunks}},
		"NoDefaultServerHeader":        {func(s *fasthttp.Server) { s.NoDefaultServerHeader = true }, []string{chunks}},
		"NoDefaultDate":                {func(s *fasthttp.Server) { s.NoDefaultDate = true }, []string{chunks}},
		"NoDefaultContentType":         {func(s *fasthttp.Server) { s.NoDefaultContentType = true }, []string{chunks}},
		"DisableHeaderNamesNormalizing": {func(s *fasthttp.Server) { s.DisableHeaderNamesNormalizing = true },
			[]string{"GET / HTTP/1.1\r\nhost: x\r\nx-lower: 1\r\nX-UPPER: 2\r\n\r\n"}},
		"ContinueHandler, yes": {func(s *fasthttp.Server) { s.ContinueHandler = func(*fasthttp.RequestHeader) bool { return true } }, []string{expects}},
		"ContinueHandler, no":  {func(s *fasthttp.Server) { s.ContinueHandler = func(*fasthttp.RequestHeader) bool { return false } }, []string{expects}},
		"ExpectHandler":        {func(s *fasthttp.Server) { s.ExpectHandler = func(*fasthttp.RequestCtx) int { return 413 } }, []string{expects}},
		"ErrorHandler": {func(s *fasthttp.Server) {
			s.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) { ctx.Error(err.Error(), 418) }
		}, []string{noForm, long(5000), "GET / HTTP/1.1\r\n\r\n"}},
		"HeaderReceived": {func(s *fasthttp.Server) {
			s.HeaderReceived = func(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
				header.Set("X-Received", "1")
				return fasthttp.RequestConfig{MaxRequestBodySize: 10}
			}
		}, []string{post(10), post(11), chunks}},
		"FormValueFunc": {func(s *fasthttp.Server) {
			s.FormValueFunc = func(*fasthttp.RequestCtx, string) []byte { return []byte("own") }
		}, []string{multipart}},
	} {
		t.Run(name, func(t *testing.T) {
			var exchanges []oracle.Exchange
			for _, request := range append(of.requests, get) {
				name := fmt.Sprintf("%.40q of %d bytes", request, len(request))
				exchanges = append(exchanges,
					oracle.Exchange{Name: name, Pieces: []string{request + get}, AnyEnd: true},
					oracle.Exchange{Name: name + ", behind another", Pieces: []string{get + request + get}, AnyEnd: true})
			}
			asFasthttp(t, of.configure, func(t *testing.T, stock, ours net.Addr) { oracle.HTTP(t, stock, ours, exchanges) })
		})
	}
}

// A head that does not end is refused as soon as it is too long, whatever the peer waits for.
func TestALongHeadThatDoesNotEnd(t *testing.T) {
	for _, size := range []int{0, 512, 16 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var exchanges []oracle.Exchange
			for _, more := range []int{0, 1, 100} {
				head := "GET /l HTTP/1.1\r\nHost: x\r\nX: "
				head += strings.Repeat("y", cmp.Or(size, 4096)-len(head)+more)
				exchanges = append(exchanges,
					oracle.Exchange{Name: fmt.Sprintf("%d more", more), Waits: true, AnyEnd: true, Pieces: []string{head}},
					oracle.Exchange{Name: fmt.Sprintf("%d more behind another", more), Waits: true, AnyEnd: true, Pieces: []string{get + head}})
			}
			asFasthttp(t, func(s *fasthttp.Server) { s.ReadBufferSize = size }, func(t *testing.T, stock, ours net.Addr) {
				oracle.HTTP(t, stock, ours, exchanges)
			})
		})
	}
}

// states notes those of its connections, one after the other.
type states struct {
	mu  sync.Mutex
	all []fasthttp.ConnState
	end chan struct{}
}

func (s *states) note(_ net.Conn, state fasthttp.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, state)
	if state == fasthttp.StateClosed {
		close(s.end)
	}
}

// ConnState is called for a connection that has left the loop, as it is by fasthttp for one that it serves with ServeConn.
func TestConnStateIsCalledAsByServeConn(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	seen := func(address net.Addr, noted *states) []fasthttp.ConnState {
		c := dial(t, address)
		for range 2 {
			io.WriteString(c, chunks)
			c.answer(t, "POST")
		}
		c.Close()
		<-noted.end
		return noted.all
	}
	stock := &states{end: make(chan struct{})}
	server := &fasthttp.Server{Handler: describes, Logger: quiet, ConnState: stock.note}
	go func() {
		if c, err := listener.Accept(); err == nil {
			server.ServeConn(c)
		}
	}()
	want := seen(listener.Addr(), stock)
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		ours := &states{end: make(chan struct{})}
		address := serve(t, engine, loop.New(describes, loop.WithServer(&fasthttp.Server{Logger: quiet, ConnState: ours.note})))
		if found := seen(address, ours); !slices.Equal(found, want) {
			t.Errorf("%v, and by fasthttp %v", found, want)
		}
	})
}
