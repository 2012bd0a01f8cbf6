package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestRoutes(t *testing.T) {
	url := "http://" + exampletest.Start(t, serve).String()
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.Get(url + "/hello/world")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "Hello, world!" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

func TestASignalEndsItBehindRequests(t *testing.T) {
	exampletest.AnswersAtTheEnd(t, "/hello/world", "Hello, world!")
}
