// Chi serves a router of chi on the loops.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"
	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	"github.com/quoit-io/quoit/go/loophttp"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	router := chi.NewRouter()
	router.Get("/hello/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Hello, %s!", chi.URLParam(r, "name"))
	})
	handler := loophttp.New(router)
	defer handler.Close()
	server, err := quoit.Start(address, handler)
	if err != nil {
		return err
	}
	ready(server.Addr())
	<-ctx.Done()
	return example.Drain(server.Shutdown)
}
