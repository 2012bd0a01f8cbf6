package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

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

func TestASignalEndsItBehindResponses(t *testing.T) {
	process := exampletest.Run(t)
	connection, err := tls.Dial("tcp", process.Address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	first := make([]byte, 1)
	if _, err := io.ReadFull(connection, first); err != nil {
		t.Fatal(err)
	}
	process.Terminate(t)
	rest, err := io.ReadAll(connection)
	if err != nil || !strings.HasSuffix(string(rest), "\r\n\r\nHTTP/1.1") {
		t.Errorf("%q, %v", rest, err)
	}
	connection.Close()
	process.Ends(t)
}
