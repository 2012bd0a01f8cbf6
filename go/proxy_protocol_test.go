package quoit_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
)

const (
	proxyLine   = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"
	proxyLocal  = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	proxyBinary = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x12\xc0\x00\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb\x05\x00\x03one"
)

// proxyCounts are the counts of a server that are not zero.
func proxyCounts(server *quoit.Server) string {
	var counts []string
	for _, counter := range server.ProxyCounters() {
		if counter.Value > 0 {
			counts = append(counts, fmt.Sprint(strings.TrimPrefix(counter.Name, "proxy_protocol_"), " ", counter.Value))
		}
	}
	return strings.Join(counts, ", ")
}

// told has a handler that tells what it hears, a string for each call.
func told() (*handler, chan string) {
	heard := make(chan string, 64)
	return &handler{
		open: func(c *quoit.Conn) {
			heard <- fmt.Sprintf("open %v %v v%d", c.RemoteAddr(), c.LocalAddr(), c.ProxyHeader().Version)
		},
		data: func(c *quoit.Conn) {
			view, _ := c.Peek(c.Buffered())
			heard <- "data " + string(view)
			c.Discard(len(view))
		},
		closed: func(_ *quoit.Conn, err error) { heard <- fmt.Sprint("close ", err) },
	}, heard
}

func TestAHeaderNamesTheClient(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h, heard := told()
		server := start(t, h, engine, quoit.WithProxyProtocol(0))
		for header, version := range map[string]int{proxyLine: 1, proxyBinary: 2} {
			client := dial(t, server.Addr()).(*net.TCPConn)
			io.WriteString(client, header+"hello")
			client.CloseWrite()
			for _, expected := range []string{
				fmt.Sprintf("open 192.0.2.7:56324 198.51.100.1:443 v%d", version), "data hello", "close <nil>",
			} {
				if found := receive(t, heard); found != expected {
					t.Fatalf("%q in place of %q", found, expected)
				}
			}
		}
		client := dial(t, server.Addr()).(*net.TCPConn)
		io.WriteString(client, proxyLocal)
		if found, expected := receive(t, heard), fmt.Sprintf("open %v %v v2", client.LocalAddr(), server.Addr()); found != expected {
			t.Fatalf("%q in place of %q", found, expected)
		}
		if counts := proxyCounts(server); counts != "proxied 2, local 1" {
			t.Error(counts)
		}
	})
}

func TestWhatAHeaderHasBesideTheAddresses(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		headers := make(chan *quoit.ProxyHeader, 1)
		server := start(t, &handler{open: func(c *quoit.Conn) { headers <- c.ProxyHeader() }}, engine, quoit.WithProxyProtocol(time.Minute))
		client := dial(t, server.Addr())
		io.WriteString(client, proxyBinary)
		header := receive(t, headers)
		value, is := header.Value(5)
		if _, isOther := header.Value(2); isOther || !is || string(value) != "one" {
			t.Errorf("%v", header.Values)
		}
		if header.Peer.String() != client.LocalAddr().String() || header.Local.String() != server.Addr().String() {
			t.Errorf("%v %v", header.Peer, header.Local)
		}
	})
}

// The second part is written when the loop has received the first, which its counter tells.
func TestAHeaderMayBeCutAnywhere(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		h, heard := told()
		server := start(t, h, engine, quoit.WithLoops(1), quoit.WithProxyProtocol(time.Minute))
		for _, text := range []string{proxyLine + "hello", proxyBinary + "hello"} {
			for cut := range len(text) - len("hello") {
				before := server.Loops().Counters()[0].Get("received_bytes")
				client := dial(t, server.Addr()).(*net.TCPConn)
				io.WriteString(client, text[:cut])
				for server.Loops().Counters()[0].Get("received_bytes") < before+uint64(cut) {
					runtime.Gosched()
				}
				io.WriteString(client, text[cut:])
				client.CloseWrite()
				if found := receive(t, heard); !strings.HasPrefix(found, "open 192.0.2.7:56324 ") {
					t.Fatalf("%d: %q", cut, found)
				}
				data := ""
				for {
					found := receive(t, heard)
					more, isData := strings.CutPrefix(found, "data ")
					if !isData {
						break
					}
					data += more
				}
				if data != "hello" {
					t.Fatalf("%d: %q", cut, data)
				}
				client.Close()
			}
		}
	})
}

func TestWhatHasNoHeaderIsEnded(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, test := range []struct {
			sent   string
			ends   bool
			within time.Duration
			counts string
			orders bool // the end is in order
		}{
			{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, time.Minute, "malformed 1", false},
			{"PROXY UNKNOWN " + strings.Repeat("x", 200), false, time.Minute, "malformed 1", false},
			{"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x10\x00", false, time.Minute, "malformed 1", false},
			{"PROXY TCP4 192.0.2.7", false, 20 * time.Millisecond, "late 1", false},
			{"", false, 20 * time.Millisecond, "late 1", false},
			{"PROXY TCP4 192.0.2.7", true, time.Minute, "ended 1", false},
			{"", true, time.Minute, "ended 1", true},
		} {
			h, heard := told()
			server := start(t, h, engine, quoit.WithProxyProtocol(test.within))
			client := dial(t, server.Addr()).(*net.TCPConn)
			io.WriteString(client, test.sent)
			if test.ends {
				client.CloseWrite()
			}
			_, err := client.Read(make([]byte, 1))
			if inOrder := err == io.EOF; inOrder != test.orders || !inOrder && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: %v", test.sent, err)
			}
			client.Close()
			shutDown(t, server)
			if counts := proxyCounts(server); counts != test.counts {
				t.Errorf("%q: %s", test.sent, counts)
			}
			if len(heard) > 0 {
				t.Errorf("%q: the handler was told %q", test.sent, <-heard)
			}
		}
	})
}

// The header's time is not the connection's.
func TestBehindItsHeaderAConnectionHasNoDeadline(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h := echoes()
		opened := make(chan struct{}, 1)
		passed := make(chan struct{}, 1)
		within := 500 * time.Millisecond
		h.open = func(c *quoit.Conn) {
			opened <- struct{}{}
			time.AfterFunc(2*within, func() { passed <- struct{}{} })
		}
		server := start(t, h, engine, quoit.WithProxyProtocol(within))
		client := dial(t, server.Addr())
		io.WriteString(client, proxyLine)
		receive(t, opened)
		receive(t, passed)
		roundTrip(t, client, "hello")
	})
}

func TestShutdownClosesConnectionsWithoutAHeader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		h, _ := told()
		server := start(t, h, engine, quoit.WithProxyProtocol(time.Minute))
		client := dial(t, server.Addr()).(*net.TCPConn)
		for server.Connections() == 0 {
			runtime.Gosched()
		}
		ended := make(chan error)
		go func() {
			_, err := client.Read(make([]byte, 1))
			client.Close()
			ended <- err
		}()
		shutDown(t, server)
		if err := receive(t, ended); err != io.EOF {
			t.Error(err)
		}
	})
}

// A handler that gives the connection away when it opens: the rest is the net.Conn's, as are the addresses.
func TestADetachedConnectionHasWhatIsBehindTheHeader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		conns := make(chan *quoit.NetConn, 1)
		server := start(t, &handler{open: func(c *quoit.Conn) {
			n, err := c.Detach()
			if err != nil {
				t.Error(err)
			}
			conns <- n
		}}, engine, quoit.WithProxyProtocol(0))
		client := dial(t, server.Addr()).(*net.TCPConn)
		io.WriteString(client, proxyLine+"hello")
		client.CloseWrite()
		n := receive(t, conns)
		defer n.Close()
		content, err := io.ReadAll(n)
		if err != nil || string(content) != "hello" || n.RemoteAddr().String() != "192.0.2.7:56324" {
			t.Errorf("%q %v %v", content, err, n.RemoteAddr())
		}
	})
}

// The requests of net/http's handlers have the client's address, on the loop and off it.
func TestRequestsHaveTheAddressOfTheHeader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		show := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RemoteAddr, " ", r.Context().Value(http.LocalAddrContextKey))
		})
		blocks := loophttp.Blocking(func(r *http.Request) bool { return r.URL.Path == "/off" })
		server := start(t, loophttp.New(show, blocks), engine, quoit.WithProxyProtocol(0))
		for _, path := range []string{"/on", "/off"} {
			client := dial(t, server.Addr())
			io.WriteString(client, proxyLine+"GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			response, err := io.ReadAll(client)
			if err != nil || !strings.HasSuffix(string(response), "\r\n\r\n192.0.2.7:56324 198.51.100.1:443") {
				t.Errorf("%s: %q %v", path, response, err)
			}
		}
	})
}

func TestProxyProtocolIsForHandlers(t *testing.T) {
	option := quoit.WithProxyProtocol(0)
	_, ofListen := quoit.Listen("tcp", "127.0.0.1:0", option)
	_, ofDialer := quoit.NewDialer(option)
	_, ofLoops := quoit.NewLoops(option)
	_, ofPackets := quoit.ListenPacket("udp", "127.0.0.1:0", option)
	_, ofDatagrams := quoit.StartDatagrams("udp", "127.0.0.1:0", nil, option)
	for index, err := range []error{ofListen, ofDialer, ofLoops, ofPackets, ofDatagrams} {
		if err == nil || !strings.Contains(err.Error(), "go-proxyproto") {
			t.Error(index, err)
		}
	}
	if _, err := quoit.Start("127.0.0.1:0", echoes(), quoit.WithProxyProtocol(-1)); err == nil {
		t.Error("a negative time is taken")
	}
	server := start(t, echoes())
	if counters := server.ProxyCounters(); counters != nil {
		t.Error(counters)
	}
}

// A longest header of all is taken, and one byte more is not.
func TestTheLimitOfAHeader(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine, quoit.WithProxyProtocol(0))
		of := func(length int) []byte {
			header := slices.Concat([]byte(proxyLocal[:14]), binary.BigEndian.AppendUint16(nil, uint16(length-16)))
			return append(header, make([]byte, length-16)...)
		}
		longest := dial(t, server.Addr())
		longest.Write(of(4096))
		roundTrip(t, longest, "hello")
		tooLong := dial(t, server.Addr())
		tooLong.Write(of(4097))
		if _, err := tooLong.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}
