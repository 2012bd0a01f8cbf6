package tests

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
)

// patience ends a test that hangs; nothing depends on it otherwise.
const patience = time.Minute

// shows responds with both ends of the connection, as a handler sees them.
var shows = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	fmt.Fprintf(w, "%s | %s %s", r.RemoteAddr, local.Network(), local)
})

// stock serves with net/http behind go-proxyproto over a listener.
func stock(t *testing.T, over net.Listener) net.Addr {
	t.Helper()
	server := &http.Server{Handler: shows}
	listener := &proxyproto.Listener{
		Listener: over, ReadHeaderTimeout: patience,
		ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil },
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return over.Addr()
}

// proxied is what headers of go-proxyproto name.
func proxied() map[string]*proxyproto.Header {
	tcp := func(text string) net.Addr {
		address, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			panic(err)
		}
		return address
	}
	four := [2]net.Addr{tcp("192.0.2.7:56324"), tcp("198.51.100.1:443")}
	six := [2]net.Addr{tcp("[2001:db8::7]:1"), tcp("[2001:db8::1]:65535")}
	unix := [2]net.Addr{&net.UnixAddr{Net: "unix", Name: "/run/client"}, &net.UnixAddr{Net: "unix", Name: "/run/server"}}
	header := func(version byte, protocol proxyproto.AddressFamilyAndProtocol, ends [2]net.Addr) *proxyproto.Header {
		return &proxyproto.Header{
			Version: version, Command: proxyproto.PROXY, TransportProtocol: protocol, SourceAddr: ends[0], DestinationAddr: ends[1],
		}
	}
	values := header(2, proxyproto.TCPv4, four)
	if err := values.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("example.test")}}); err != nil {
		panic(err)
	}
	return map[string]*proxyproto.Header{
		"text, IPv4":             header(1, proxyproto.TCPv4, four),
		"text, IPv6":             header(1, proxyproto.TCPv6, six),
		"text, unknown":          {Version: 1, Command: proxyproto.PROXY, TransportProtocol: proxyproto.UNSPEC},
		"binary, IPv4":           header(2, proxyproto.TCPv4, four),
		"binary, IPv6":           header(2, proxyproto.TCPv6, six),
		"binary, Unix":           header(2, proxyproto.UnixStream, unix),
		"binary, local":          {Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC},
		"binary, with authority": values,
	}
}

// ask sends a header and a request, and returns the response's body, with the client's own address and the server's by name.
func ask(t *testing.T, address net.Addr, header *proxyproto.Header) string {
	t.Helper()
	client, err := net.Dial(address.Network(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(patience))
	if _, err := header.WriteTo(client); err != nil {
		t.Fatal(err)
	}
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	response, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(response), "\r\n\r\n")
	return strings.NewReplacer(client.LocalAddr().String(), "the client", address.String(), "the server").Replace(body)
}

// A handler sees the same ends of its connections with net/http behind go-proxyproto on package net, with these over Listen,
// and with loophttp and WithProxyProtocol.
func TestHandlersSeeWhomGoProxyprotoSees(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	oracle := stock(t, plain)
	for _, engine := range append(engines, quoit.EngineStd) {
		options := []quoit.Option{quoit.WithEngine(engine), quoit.WithLogger(slog.New(slog.DiscardHandler))}
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", options...)
		if err != nil {
			t.Fatal(err)
		}
		over := stock(t, listener)
		server, err := quoit.Start("127.0.0.1:0", loophttp.New(shows), append(options, quoit.WithProxyProtocol(patience))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			limit, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := server.Shutdown(limit); err != nil {
				t.Error(err)
			}
		})
		for name, header := range proxied() {
			t.Run(engine.String()+"/"+name, func(t *testing.T) {
				expected := ask(t, oracle, header)
				if found := ask(t, over, header); found != expected {
					t.Errorf("over Listen %q, over package net %q", found, expected)
				}
				if found := ask(t, server.Addr(), header); found != expected {
					t.Errorf("with WithProxyProtocol %q, with go-proxyproto %q", found, expected)
				}
				if names := !strings.Contains(name, "unknown") && !strings.Contains(name, "local"); names == strings.Contains(expected, "the client") {
					t.Errorf("%q", expected)
				}
			})
		}
	}
}
