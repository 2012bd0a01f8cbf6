package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestHandlers(t *testing.T) {
	url := "http://" + exampletest.Start(t, serve).String()
	defer http.DefaultClient.CloseIdleConnections()
	for path, want := range map[string]string{"/hello": "Hello, World!", "/slow/down": "0\n1\n2\n"} {
		response, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if string(body) != want || err != nil {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
}

func TestASignalEndsItBehindRequests(t *testing.T) {
	exampletest.AnswersAtTheEnd(t, "/hello", "Hello, World!")
}
