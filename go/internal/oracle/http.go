// Package oracle holds servers of this module against the stock ones that they stand in for: the same bytes are sent to both,
// and what a client can see must be the same.
package oracle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience ends an exchange that hangs; nothing depends on it otherwise.
const patience = 20 * time.Second

// quiet is how long nothing comes from a server that waits for more. One that takes longer sees the client's end sooner.
const quiet = 300 * time.Millisecond

// Exchange is what a client sends: the pieces one after the other, and then, unless it Waits for the server's end, its own end.
type Exchange struct {
	Name   string
	Pieces []string
	Waits  bool
	// EndsLate has the client end its direction, unless it Waits, only when nothing has come from the server for a while: for
	// servers whose response to a client that has ended comes or does not, whichever they find first.
	EndsLate bool
	// AnyEnd is set where the server may have more to read than it does when it closes: whether the client then sees an end or
	// a reset depends on which comes first.
	AnyEnd bool
	// Differs says why ours is seen to be different: listed in the door's page. The test fails where it is not.
	Differs string
}

// HTTP makes each exchange with the stock server and with ours.
func HTTP(t *testing.T, stock, ours net.Addr, exchanges []Exchange) {
	t.Helper()
	HTTPWithRaces(t, stock, ours, exchanges, 1)
}

// HTTPWithRaces is HTTP for servers whose response to a client that has ended depends on what they find first: what was seen of
// both counts as the same if either does in one of so many tries what the other did.
func HTTPWithRaces(t *testing.T, stock, ours net.Addr, exchanges []Exchange, tries int) {
	t.Helper()
	compareAll(t, stock, ours, exchanges, tries, nil)
}

// compareAll makes the exchanges, and takes what was seen of the stock server before from known, which has it by
// name, if that is not nil.
func compareAll(t *testing.T, stock, ours net.Addr, exchanges []Exchange, tries int, known *sync.Map) {
	t.Helper()
	// Several at a time: an exchange is mostly waiting.
	var all sync.WaitGroup
	next := make(chan Exchange)
	atOnce := 4
	if slices.ContainsFunc(exchanges, func(e Exchange) bool { return e.EndsLate }) {
		atOnce = 32
	}
	for range atOnce {
		all.Go(func() {
			for exchange := range next {
				exchange.compare(t, stock, ours, tries, known)
			}
		})
	}
	for _, exchange := range exchanges {
		next <- exchange
	}
	close(next)
	all.Wait()
}

// compare makes the exchange with both, and fails the test where they differ.
func (e Exchange) compare(t *testing.T, stock, ours net.Addr, tries int, known *sync.Map) {
	t.Helper()
	var want string
	if was, isKnown := load(known, e.Name); isKnown {
		want = was
	} else {
		want = e.with(t, stock)
		if known != nil {
			known.Store(e.Name, want)
		}
	}
	found := e.with(t, ours)
	wanted, seen := []string{want}, []string{found}
	for try := 1; try < tries && want != found; try++ {
		wanted, seen = append(wanted, e.with(t, stock)), append(seen, e.with(t, ours))
		for _, one := range seen {
			if slices.Contains(wanted, one) {
				want, found = one, one
			}
		}
	}
	switch {
	case strings.HasSuffix(want, noEnd):
		t.Errorf("%s: the stock server waits for more: %s", e.Name, want)
	case want == found && e.Differs != "":
		t.Errorf("%s: no difference any more, though listed: %s", e.Name, e.Differs)
	case want != found && e.Differs == "":
		t.Errorf("%s: sent %.300q\nstock: %s\nours:  %s", e.Name, e.Pieces, want, found)
	}
}

func load(known *sync.Map, name string) (string, bool) {
	if known == nil {
		return "", false
	}
	was, isKnown := known.Load(name)
	text, _ := was.(string)
	return text, isKnown
}

// with makes the exchange, and returns what was seen.
func (e Exchange) with(t *testing.T, address net.Addr) string {
	t.Helper()
	connection, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, piece := range e.Pieces {
			if _, err := io.WriteString(connection, piece); err != nil {
				return // the server has refused the rest
			}
		}
		if !e.Waits && !e.EndsLate {
			_ = connection.(*net.TCPConn).CloseWrite() // or it has ended
		}
	}()
	var came []byte
	if e.EndsLate && !e.Waits {
		<-sent
		came, err = untilQuiet(connection)
		_ = connection.(*net.TCPConn).CloseWrite() // or it has ended
	}
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(connection)
		came = append(came, rest...)
	}
	<-sent
	if e.AnyEnd && errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return seen(came, err, strings.Join(e.Pieces, ""))
}

// untilQuiet reads until nothing comes any more. After an end it returns no error, as there is none to be read.
func untilQuiet(connection net.Conn) (came []byte, err error) {
	defer connection.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 16<<10)
	for {
		_ = connection.SetReadDeadline(time.Now().Add(quiet))
		count, err := connection.Read(buffer)
		came = append(came, buffer[:count]...)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
			return came, nil
		default:
			return came, err
		}
	}
}

const noEnd = " no end"

// seen describes the responses in the bytes that came, and how they ended.
func seen(came []byte, end error, sent string) string {
	var text strings.Builder
	reader := bufio.NewReader(bytes.NewReader(came))
	// Of a HEAD no body comes. Which request a response belongs to is their order.
	methods := methodsOf(sent)
	for number := 0; ; {
		if _, err := reader.Peek(1); err != nil {
			break
		}
		method := http.MethodGet
		if number < len(methods) {
			method = methods[number]
		}
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			rest, _ := io.ReadAll(reader)
			fmt.Fprintf(&text, "[no response: %v %q]", err, rest)
			break
		}
		if response.StatusCode >= 200 {
			number++
		}
		body, err := io.ReadAll(response.Body)
		fmt.Fprintf(&text, "[%s %s close=%v", response.Proto, response.Status, response.Close)
		for _, name := range slices.Sorted(mapKeys(response.Header)) {
			values := response.Header[name]
			if name == "Date" {
				values = []string{"..."}
			}
			fmt.Fprintf(&text, " %s=%q", name, values)
		}
		// How a long body is framed is the server's business.
		fmt.Fprintf(&text, " %q", body)
		for _, name := range slices.Sorted(mapKeys(response.Trailer)) {
			fmt.Fprintf(&text, " trailer %s=%q", name, response.Trailer[name])
		}
		if err != nil {
			fmt.Fprintf(&text, " cut: %v", err)
		}
		text.WriteString("]")
	}
	switch {
	case end == nil:
		text.WriteString(" end")
	case errors.Is(end, syscall.ECONNRESET):
		text.WriteString(" reset")
	case errors.Is(end, os.ErrDeadlineExceeded):
		text.WriteString(noEnd)
	default:
		fmt.Fprintf(&text, " %v", end)
	}
	return text.String()
}

func mapKeys(header http.Header) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range header {
			if name != "Content-Length" && !yield(name) {
				return
			}
		}
	}
}

// methodsOf finds the methods of requests, for what it is worth: only those of a HEAD matter.
func methodsOf(sent string) []string {
	var methods []string
	for line := range strings.SplitSeq(sent, "\n") {
		if method, _, found := strings.Cut(line, " "); found && strings.Contains(line, "HTTP/") {
			if strings.HasSuffix(method, http.MethodHead) {
				method = http.MethodHead // behind a body
			}
			methods = append(methods, method)
		}
	}
	return methods
}

// Routes are what the servers of a comparison serve.
func Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q %q %v %v", r.Method, r.RequestURI, r.Proto, r.Host, body, err, r.ContentLength)
		for _, name := range slices.Sorted(mapKeys(r.Header)) {
			fmt.Fprintf(w, " %s=%q", name, r.Header[name])
		}
	})
	mux.HandleFunc("/late-header", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Early", "1")
		w.WriteHeader(http.StatusAccepted)
		w.Header().Set("X-Late", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "accepted")
		w.Header().Set("X-Later", "1")
	})
	mux.HandleFunc("/header-kept", func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Value", "before")
		_, _ = io.WriteString(w, "begun")
		header.Set("X-Value", "after")
		header["Date"] = nil
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, Authorization")
		w.Header().Add("Trailer", "X-Unset")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "4")
		w.Header().Set("X-Stray", "1")
	})
	mux.HandleFunc("/trailer-prefix", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(http.TrailerPrefix+"X-Early", "1")
		_, _ = io.WriteString(w, "body")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	mux.HandleFunc("/trailer-late", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "short")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	mux.HandleFunc("/trailer-late-long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("long", 1000))
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	mux.HandleFunc("/context", func(w http.ResponseWriter, r *http.Request) {
		server, isServer := r.Context().Value(http.ServerContextKey).(*http.Server)
		address, isAddress := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		// Not whether it is canceled: net/http does that when it sees the client's end, which may be now or later.
		fmt.Fprintf(w, "%v %v %v", isServer && server != nil, isAddress && address.Network() == "tcp", r.TLS)
	})
	mux.HandleFunc("/informs", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-Then", "1")
		w.WriteHeader(http.StatusProcessing)
		_, _ = io.WriteString(w, "at last")
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		w.Header().Set("Content-Type", "text/x-own")
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(code)
		_, err := io.WriteString(w, "body")
		w.Header().Set("X-Error", fmt.Sprint(err))
	})
	mux.HandleFunc("/counted/{length}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", r.PathValue("length"))
		_, first := io.WriteString(w, "hel")
		_, second := io.WriteString(w, "lo")
		if first != nil || second != nil {
			w.Header().Set(http.TrailerPrefix+"X", "unused")
		}
	})
	mux.HandleFunc("/coded/{coding}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", r.PathValue("coding"))
		_, _ = io.WriteString(w, "coded")
	})
	mux.HandleFunc("/coded-and-counted", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "chunked")
		w.Header().Set("Content-Length", "99")
		w.Header().Set("Connection", "x-token, close")
		_, _ = io.WriteString(w, "coded")
	})
	mux.HandleFunc("/closing", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "bye")
	})
	mux.HandleFunc("/connection", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "x-token")
		_, _ = io.WriteString(w, "stays")
	})
	mux.HandleFunc("/keeps", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "keep-alive")
		_, _ = io.WriteString(w, "stays")
	})
	mux.HandleFunc("/typed", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	})
	mux.HandleFunc("/encoded", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "x-none")
		_, _ = io.WriteString(w, "<html>")
	})
	mux.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/unread", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "unread") })
	mux.HandleFunc("/split", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Split", " a\r\nX-Evil: b\t")
		w.Header()["bad name"] = []string{"x"}
		w.Header()["x-lower"] = []string{"1", "2"}
	})
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("as asked") })
	mux.HandleFunc("/panic-late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		panic("as asked")
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

func get(target string) string  { return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }
func head(target string) string { return "HEAD " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }

const last = "GET /last HTTP/1.1\r\nHost: x\r\n\r\n"

// Features are exchanges that use what handlers can do with a response, and what ends a connection. differs has the reasons of
// those that are listed as different, by name.
func Features(differs map[string]string) []Exchange {
	exchanges := []Exchange{
		{Name: "options of all", Pieces: []string{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", last}},
		{Name: "options of all with a body", Pieces: []string{"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", last}},
		{Name: "options of one", Pieces: []string{"OPTIONS /x HTTP/1.1\r\nHost: x\r\n\r\n", last}},
		{Name: "panic behind a response", Waits: true, Pieces: []string{get("/before") + get("/panic")}},
		{Name: "exit behind a response", Waits: true, Pieces: []string{get("/before") + get("/exit")}},
		{Name: "a head longer than is served on a loop", Pieces: []string{
			"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("y", 40<<10) + "\r\n\r\n", last}},
		{Name: "a head longer than is served", Waits: true, AnyEnd: true, Pieces: []string{
			"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("y", 2<<20)}},
		{Name: "an empty line first", Pieces: []string{"\r\n" + last}},
	}
	for _, path := range []string{"/late-header", "/header-kept", "/trailers", "/trailer-prefix", "/trailer-late",
		"/trailer-late-long", "/context", "/informs", "/status/200", "/status/204", "/status/304", "/status/404", "/status/299",
		"/status/599", "/counted/5", "/counted/4", "/counted/x", "/counted/-1", "/counted/0", "/closing", "/connection", "/keeps", "/typed",
		"/coded/chunked", "/coded/identity", "/coded-and-counted",
		"/encoded", "/nothing", "/split", "/a//b", "/redirect/../x"} {
		exchanges = append(exchanges,
			Exchange{Name: "get " + path, Pieces: []string{get(path) + last}},
			Exchange{Name: "head " + path, Pieces: []string{head(path) + last}})
	}
	for _, path := range []string{"/closing", "/connection", "/keeps", "/coded-and-counted"} {
		exchanges = append(exchanges, Exchange{
			Name: "asked to close " + path, Waits: true, Pieces: []string{"GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
		})
	}
	for _, path := range []string{"/panic", "/panic-late", "/abort", "/exit", "/closing", "/counted/9"} {
		exchanges = append(exchanges, Exchange{Name: "end of " + path, Waits: true, Pieces: []string{get(path)}})
	}
	for index := range exchanges {
		exchanges[index].Differs = differs[exchanges[index].Name]
	}
	return exchanges
}

// Ends are exchanges that end in the midst of something.
func Ends() []Exchange {
	return []Exchange{
		{Name: "pipelined, and the end", Pieces: []string{strings.Repeat(get("/a"), 1000), last}},
		{Name: "pipelined posts, and the end", Pieces: []string{strings.Repeat("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 500), last}},
		{Name: "pipelined, and one to stream", Pieces: []string{strings.Repeat(get("/a"), 200),
			"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", last}},
		{Name: "no request", Pieces: nil},
		{Name: "half a head", Pieces: []string{"GET / HTTP/1.1\r\nHo"}},
		{Name: "half a body", Pieces: []string{"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"}},
		{Name: "asked to close", Waits: true, Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"}},
		{Name: "asked to close, and more", Pieces: []string{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"}},
	}
}

// Hostile makes count requests of a grammar that has what servers are known to read differently (RFC 9112, 11.2), each
// with another request behind it: those of a seed are always the same.
func Hostile(seed uint64, count int) []Exchange {
	random := rand.New(rand.NewPCG(seed, 0))
	exchanges := make([]Exchange, count)
	for number := range exchanges {
		request := hostile(random)
		pieces := []string{request + last}
		if random.IntN(4) == 0 {
			cut := random.IntN(len(request))
			pieces = []string{request[:cut], request[cut:] + last}
		}
		exchanges[number] = Exchange{Name: fmt.Sprintf("hostile %d of seed %d", number, seed), Pieces: pieces, AnyEnd: true}
	}
	return exchanges
}

// EachCut sends a request in two pieces, cut at each byte.
func EachCut() []Exchange {
	var exchanges []Exchange
	for number, request := range []string{
		"POST /cut?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello" + last,
		"POST /cut HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n" + last,
	} {
		for cut := 1; cut < len(request); cut++ {
			exchanges = append(exchanges, Exchange{
				Name: fmt.Sprintf("%d cut at %d", number, cut), Pieces: []string{request[:cut], request[cut:]},
			})
		}
	}
	return exchanges
}

func pick(random *rand.Rand, usual string, others ...string) string {
	if random.IntN(3) > 0 {
		return usual
	}
	return others[random.IntN(len(others))]
}

func hostile(random *rand.Rand) string {
	lineEnd := pick(random, "\r\n", "\r\n", "\r\n", "\n", "\r\n", "\r")
	var text strings.Builder
	text.WriteString(pick(random, "", "", "", "\r\n", "\n", "\r\n\r\n", " "))
	text.WriteString(pick(random, "POST", "GET", "HEAD", "PUT", "OPTIONS", "TRACE", "get", "G@T", "", "PRI", "DELETE"))
	text.WriteString(pick(random, " ", " ", " ", "  ", "\t"))
	text.WriteString(pick(random, "/x", "/x?q=%zz", "*", "http://y/z", "//z", "/%41", "/%zz", "x", "", "/a b", "/\x01", "/ä", "/x#f",
		"http://u:p@y/", "https://[::1]:8/z", "/"+strings.Repeat("p", 300)))
	text.WriteString(pick(random, " HTTP/1.1", " HTTP/1.1", " HTTP/1.0", " HTTP/1.2", " HTTP/2.0", " HTTP/0.9", " http/1.1", "",
		" HTTP/1.1 ", " HTTP/11", " HTTP/1.01"))
	text.WriteString(lineEnd)
	body := pick(random, "abc", "", "3\r\nabc\r\n0\r\n\r\n", "3;x=y\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", "abc\r\n", "x\r\n\r\n", "ffffffffffffffffff\r\na")
	fields := []string{pick(random, "Host: x", "Host: x", "Host:", "Host : x", "Host: x\r\nHost: x", "Host: x\r\nHost: y", "X: y", "Host: a/b", "host: x:80", "Host: x y")}
	fields = append(fields, pick(random, fmt.Sprintf("Content-Length: %d", len(body)), "X-None: 1", "Content-Length: 3", "Content-Length: +3",
		"Content-Length: 03", "Content-Length: 3, 3", "Content-Length: 3\r\nContent-Length: 3", "Content-Length: 3\r\nContent-Length: 4",
		"Content-Length: -1", "Content-Length: 3 3", "Content-Length:", "Content-Length: 0x3", "Content-Length : 3",
		"Content-Length: 99999999999999999999", "content-length:\t3", "Content_Length: 3", "Content-Length: 3\x0b"))
	fields = append(fields, pick(random, "X-Plain: 1", "X-Plain: 1", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding:\tchunked",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding : chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding:\r\n chunked", "Transfer-Encoding: \"chunked\"", "X: y\r\nTransfer-Encoding: chunked"))
	fields = append(fields, pick(random, "X-Last: 1", "X-Last: 1", "Connection: close", "Connection: keep-alive", "Connection: x, close", "Expect: 100-continue",
		"Expect: 200-ok", "Upgrade: h2c\r\nConnection: upgrade", "bad name: 1", "no-colon", " folded", "X-Nul: a\x00b", "X-Del: \x7f", "X-High: \xff",
		": empty", "X-Empty:", "X-Spaces:   a  b  ", "Trailer: X-T", "X-Bare: a\rb", "Connection: Content-Length"))
	if random.IntN(2) == 0 {
		random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	for _, field := range fields {
		text.WriteString(field)
		text.WriteString(lineEnd)
	}
	text.WriteString(lineEnd)
	text.WriteString(body)
	return text.String()
}
