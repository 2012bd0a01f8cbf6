package doors

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

const protocol = "echo"

// certificate makes one for loopback, and what trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"quoit.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	server = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, NextProtos: []string{protocol},
	}
	return server, &tls.Config{RootCAs: roots, ServerName: "quoit.test", NextProtos: []string{protocol}}
}

// QUIC over two packet connections: many streams at once, each longer than the windows.
func TestQUICCarriesStreams(t *testing.T) {
	const streams, length = 20, 300_000
	serverTLS, clientTLS := certificate(t)
	onEachWay(t, func(t *testing.T, w way) {
		ctx := inPatience(t)
		l, err := quic.Listen(w.packetConn(t), serverTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go serveQUIC(ctx, l)
		conn, err := quic.Dial(ctx, w.packetConn(t), l.Addr(), clientTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		for number := range streams {
			clients.Go(func() {
				sent := bytes.Repeat([]byte{byte(number), byte(number + 1), 3}, length/3)
				stream, err := conn.OpenStreamSync(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					stream.Write(sent)
					stream.Close()
				}()
				if came, err := io.ReadAll(stream); err != nil || !bytes.Equal(came, sent) {
					t.Errorf("stream %d: %d of %d bytes, %v", number, len(came), len(sent), err)
				}
			})
		}
		clients.Wait()
		if err := conn.CloseWithError(0, ""); err != nil {
			t.Error(err)
		}
	})
}

func serveQUIC(ctx context.Context, l *quic.Listener) {
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			for {
				stream, err := conn.AcceptStream(ctx)
				if err != nil {
					return
				}
				go func() {
					io.Copy(stream, stream)
					stream.Close()
				}()
			}
		}()
	}
}
