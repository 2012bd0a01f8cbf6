// Opentelemetry pushes the counters of the loops to a collector, as metrics of OpenTelemetry: what the collector for Prometheus has,
// through OpenTelemetry's bridge. The collector's address is told as OpenTelemetry has it (OTEL_EXPORTER_OTLP_ENDPOINT).
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	client "github.com/prometheus/client_golang/prometheus"
	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	"github.com/quoit-io/quoit/go/loophttp"
	"github.com/quoit-io/quoit/go/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "Hello, World!") })
	handler := loophttp.New(mux)
	defer handler.Close()
	server, err := quoit.Start(address, handler)
	if err != nil {
		return err
	}
	provider, err := export(ctx, server.Loops())
	if err != nil {
		return errors.Join(err, server.Shutdown(ctx))
	}
	ready(server.Addr())
	<-ctx.Done()
	// The last figures are those of a server that has ended its connections, and loops that still are.
	return example.Drain(provider.Shutdown, server.Shutdown)
}

// export pushes what the loops count, each minute (OTEL_METRIC_EXPORT_INTERVAL) and at the end.
func export(ctx context.Context, loops *quoit.Loops) (*metric.MeterProvider, error) {
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.NewCollector(loops))
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, err
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry))))
	return metric.NewMeterProvider(metric.WithReader(reader)), nil
}
