package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestBothVersions(t *testing.T) {
	url := "https://" + exampletest.Start(t, serve).String()
	for _, two := range []bool{false, true} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: two,
		}
		response, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		transport.CloseIdleConnections()
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[two]; string(body) != want || err != nil {
			t.Errorf("%q, not %q: %v", body, want, err)
		}
	}
}
