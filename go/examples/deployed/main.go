// Deployed is a server as a cluster runs it: beside what it serves it has an address for metrics and probes, which goes on
// answering while the server drains. docs/kubernetes.md says who asks. That address is package net/http's, not the loops'.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
	"github.com/quoit-io/quoit/go/prometheus"
)

type settings struct {
	listen, metrics, engine string
	loops, connections      int
	drain                   time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address to serve")
	flag.StringVar(&s.metrics, "metrics", "127.0.0.1:9100", "address of /metrics, /readyz and /livez")
	flag.StringVar(&s.engine, "engine", "auto", "auto, io_uring (or uring), epoll, or std")
	flag.IntVar(&s.loops, "loops", 1, "event loops")
	flag.IntVar(&s.connections, "connections", 16384, "connections of each loop")
	flag.DurationVar(&s.drain, "drain", 10*time.Second, "how long requests in flight may take after SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, s); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, s settings) error {
	if s.engine == "uring" {
		s.engine = quoit.EngineURing.String()
	}
	engine, err := quoit.ParseEngine(s.engine)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "Hello, World!") })
	handler := loophttp.New(mux)
	defer handler.Close()
	server, err := quoit.Start(s.listen, handler,
		quoit.WithEngine(engine), quoit.WithLoops(s.loops), quoit.WithConnections(s.connections))
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Wait() }()

	var draining atomic.Bool
	watched, err := net.Listen("tcp", s.metrics)
	if err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	go http.Serve(watched, watch(server.Loops(), &draining))
	fmt.Println("listening on", server.Addr())
	fmt.Println("metrics on", watched.Addr())

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	draining.Store(true)
	limit, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	if err := server.Shutdown(limit); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	log.Print("what was not over in time was aborted")
	return nil
}

// watch answers whoever watches.
func watch(loops *quoit.Loops, draining *atomic.Bool) http.Handler {
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.NewCollector(loops))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok")
	})
	// A loop that has failed ends the process, so that there is nothing else to say.
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	return mux
}
