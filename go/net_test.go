package quoit_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

func listen(t *testing.T, options ...quoit.Option) *quoit.Listener {
	t.Helper()
	listener, err := quoit.Listen("tcp", "127.0.0.1:0", append([]quoit.Option{quiet()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func newDialer(t *testing.T, options ...quoit.Option) *quoit.Dialer {
	t.Helper()
	dialer, err := quoit.NewDialer(append([]quoit.Option{quiet()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialer.Close() })
	return dialer
}

// certificate makes a certificate for 127.0.0.1 and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

// fileContent is what /file serves.
var fileContent = strings.Repeat("sixteen bytes of\n", 2000)

// routes is what the servers of the tests do.
func routes(t *testing.T) http.Handler {
	file := filepath.Join(t.TempDir(), "served")
	if err := os.WriteFile(file, []byte(fileContent), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	})
	mux.HandleFunc("GET /proto", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("GET /hijack", func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprint(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		buffered.Flush()
		io.Copy(connection, buffered)
	})
	return mux
}

// serveHTTP serves the routes on a listener of the engine, and returns its URL and a client that dials on its loops.
func serveHTTP(t *testing.T, engine quoit.Option, withTLS bool) (string, *http.Client) {
	t.Helper()
	listener := listen(t, engine)
	dialer := newDialer(t, quoit.OnLoops(listener.Loops()))
	server := &http.Server{Handler: routes(t)}
	transport := &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true}
	scheme := "http"
	if withTLS {
		scheme = "https"
		pair, pool := certificate(t)
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		go server.ServeTLS(listener, "", "")
	} else {
		go server.Serve(listener)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return scheme + "://" + listener.Addr().String(), &http.Client{Transport: transport, Timeout: patience}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestNetHTTPOverTheListener(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		for _, withTLS := range []bool{false, true} {
			url, client := serveHTTP(t, engine, withTLS)
			want := "HTTP/1.1"
			if withTLS {
				want = "HTTP/2.0"
			}
			if proto := get(t, client, url+"/proto"); proto != want {
				t.Errorf("TLS %v: %s", withTLS, proto)
			}
			if file := get(t, client, url+"/file"); file != fileContent {
				t.Errorf("TLS %v: the file has changed on its way", withTLS)
			}
			var clients sync.WaitGroup
			for number := range 10 {
				clients.Go(func() {
					for size := range 20 {
						if size >= 10 && (size+number)%3 != 0 {
							continue // of the large ones, which take nearly all of the time, each is sent by three or four
						}
						body := bytes.Repeat([]byte{byte(number)}, size*size*size*50)
						response, err := client.Post(url+"/echo", "", bytes.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						answer, err := io.ReadAll(response.Body)
						response.Body.Close()
						if err != nil || !bytes.Equal(answer, body) {
							t.Errorf("TLS %v: %d of %d bytes, %v", withTLS, len(answer), len(body), err)
						}
					}
				})
			}
			clients.Wait()
		}
	})
}

func TestHijackKeepsWhatWasRead(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		url, _ := serveHTTP(t, engine, false)
		connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		connection.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(connection, "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(response, err)
		}
		fmt.Fprint(connection, " and late")
		answer := make([]byte, len("early and late"))
		if _, err := io.ReadFull(reader, answer); err != nil || string(answer) != "early and late" {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

func TestTLSOnBothSides(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		pair, pool := certificate(t)
		plain := listen(t, engine)
		listener := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{pair}})
		go func() {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			io.Copy(connection, connection)
			connection.Close()
		}()
		raw, err := newDialer(t, quoit.OnLoops(plain.Loops())).Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(raw, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
		client.SetDeadline(time.Now().Add(patience))
		sent := bytes.Repeat([]byte("secret "), 200_000)
		go func() {
			client.Write(sent)
			client.CloseWrite()
		}()
		came, err := io.ReadAll(client)
		if err != nil || !bytes.Equal(came, sent) {
			t.Errorf("%d of %d bytes, %v", len(came), len(sent), err)
		}
		client.Close()
	})
}

func TestReadFromFillsTheConnection(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		content := bytes.Repeat([]byte("0123456789"), 300_000)
		go func() {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			n, err := connection.(io.ReaderFrom).ReadFrom(bytes.NewReader(content))
			if n != int64(len(content)) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}()
		came, err := io.ReadAll(dial(t, listener.Addr()))
		if err != nil || !bytes.Equal(came, content) {
			t.Errorf("%d bytes, %v", len(came), err)
		}
	})
}

func TestDialErrors(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		dialer := newDialer(t, engine)
		address := refusing(t)
		_, err := dialer.Dial("tcp", address)
		var failed *net.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &failed) || failed.Op != "dial" {
			t.Error(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := dialer.DialContext(over, "tcp", address); err == nil {
			t.Error("it has connected although the context is over")
		}
		if _, err := dialer.DialContext(over, "udp", address); err == nil {
			t.Error("it has a socket of datagrams although the context is over")
		}
		if _, err := dialer.Dial("sctp", address); !errors.As(err, new(net.UnknownNetworkError)) {
			t.Errorf("a network that is not known answers %v", err)
		}
	})
}

func TestACloseUnblocksAccept(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		listener := listen(t, engine)
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := listener.Accept()
				errs <- err
			}()
		}
		listener.Close()
		for range 2 {
			if err := receive(t, errs); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// TestAWaitOnTheLoopIsAnError has a callback read from a net.Conn of its own loop.
func TestAWaitOnTheLoopIsAnError(t *testing.T) {
	for _, engine := range engines() {
		if engine == quoit.EngineStd {
			continue // a goroutine per connection may wait
		}
		results := make(chan error, 3)
		server := start(t, &handler{data: func(c *quoit.Conn) {
			n, err := c.Detach()
			if err != nil {
				t.Error(err)
				return
			}
			buffer := make([]byte, 3)
			if count, err := n.Read(buffer); count != 3 || err != nil {
				t.Errorf("what has arrived can be read: %d, %v", count, err)
			}
			_, err = n.Read(buffer)
			results <- err
			_, err = n.Write(make([]byte, 4<<20))
			results <- err
			go func() { n.Write([]byte("!")); n.Close() }()
		}}, quoit.WithEngine(engine), quoit.WithLoops(1))
		client := dial(t, server.Addr())
		io.WriteString(client, "abc")
		for range 2 {
			if err := receive(t, results); !errors.Is(err, quoit.ErrOnLoop) {
				t.Error(err)
			}
		}
		if all, err := io.ReadAll(client); err != nil || len(all) != 256<<10+1 {
			t.Errorf("%d bytes, %v", len(all), err)
		}
	}
}

// A wildcard of IPv6 takes IPv4 as well, but for tcp6; package net says what is right.
func TestTheWildcardOfIPv6(t *testing.T) {
	open := func(t *testing.T, listen func(network, address string) (net.Listener, error)) {
		for _, network := range []string{"tcp", "tcp6"} {
			listener, err := listen(network, "[::]:0")
			if err != nil {
				t.Skip("this machine has no IPv6")
			}
			defer listener.Close()
			to := net.JoinHostPort("127.0.0.1", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
			connection, err := net.Dial("tcp4", to)
			if err == nil {
				connection.Close()
			}
			if taken := err == nil; taken != (network == "tcp") {
				t.Errorf("%s: %v", network, err)
			}
		}
	}
	t.Run("net", func(t *testing.T) { open(t, net.Listen) })
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		open(t, func(network, address string) (net.Listener, error) {
			return quoit.Listen(network, address, engine, quiet())
		})
	})
}
