package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"

	quoit "github.com/quoit-io/quoit/go"
)

// serveMetrics serves the loops' counters as text for Prometheus, under the names of `quoit serve --metrics`. It uses
// package net, so that it answers however busy the loops are.
func serveMetrics(address string, loops *quoit.Loops) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	fmt.Fprintf(os.Stderr, "metrics on %v\n", listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		// An error means that the peer has gone.
		_, _ = writer.Write(metricsText(loops))
	})
	go func() {
		if err := http.Serve(listener, mux); err != nil {
			fmt.Fprintf(os.Stderr, "quoit-go: serving metrics: %v\n", err)
		}
	}()
	return nil
}

func metricsText(loops *quoit.Loops) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# HELP quoit_engine_info The engine and why it runs\n# TYPE quoit_engine_info gauge\n"+
		"quoit_engine_info{engine=%q,reason=%q} 1\n", loops.Engine(), loops.EngineReason())
	all := loops.Counters()
	// All loops have the same counters in the same order.
	for position, counter := range all[0] {
		name, kind := "quoit_"+counter.Name+"_total", "counter"
		if counter.Gauge {
			name, kind = "quoit_"+counter.Name, "gauge"
		}
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", name, counter.About, name, kind)
		for loop, counters := range all {
			fmt.Fprintf(&text, "%s{loop=\"%d\"} %d\n", name, loop, counters[position].Value)
		}
	}
	return text.Bytes()
}
