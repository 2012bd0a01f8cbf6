// Tls serves HTTP/1.1 and HTTP/2 over TLS: crypto/tls and net/http over a listener on the loops. The certificate is made
// at the start and trusted by nobody.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	certificate, err := makeCertificate()
	if err != nil {
		return err
	}
	listener, err := quoit.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { stopped <- example.Drain(server.Shutdown, listener.Shutdown) })()
	ready(listener.Addr())
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func makeCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}
