// Nethttp serves a net/http handler on the loops; what may block runs on goroutines.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	"github.com/quoit-io/quoit/go/loophttp"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "Hello, World!") })
	mux.HandleFunc("/slow/", func(w http.ResponseWriter, _ *http.Request) {
		for number := range 3 {
			fmt.Fprintln(w, number)
			w.(http.Flusher).Flush() // a goroutine's: on the loop there is nothing to flush
		}
	})
	handler := loophttp.New(mux, loophttp.Blocking(func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/slow/")
	}))
	defer handler.Close()
	server, err := quoit.Start(address, handler)
	if err != nil {
		return err
	}
	ready(server.Addr())
	<-ctx.Done()
	return example.Drain(server.Shutdown)
}
