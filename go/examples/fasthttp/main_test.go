package main

import (
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
	"github.com/valyala/fasthttp"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestHandler(t *testing.T) {
	url := "http://" + exampletest.Start(t, serve).String()
	client := &fasthttp.Client{}
	defer client.CloseIdleConnections()
	for range 3 {
		if status, body, err := client.Get(nil, url); status != 200 || string(body) != "Hello, World!" || err != nil {
			t.Errorf("%d, %q, %v", status, body, err)
		}
	}
}

func TestASignalEndsItBehindRequests(t *testing.T) {
	exampletest.AnswersAtTheEnd(t, "/", "Hello, World!")
}
