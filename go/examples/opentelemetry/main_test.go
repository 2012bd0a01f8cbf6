package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// A collector gets what was counted, by the names of Prometheus and for each loop.
func TestTheCountersArePushedToACollector(t *testing.T) {
	pushed := make(chan *collector.ExportMetricsServiceRequest, 16)
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
			return
		}
		request := new(collector.ExportMetricsServiceRequest)
		if err := proto.Unmarshal(text, request); err != nil {
			t.Error(err)
		}
		pushed <- request
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer stub.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", stub.URL)
	p := exampletest.Run(t)
	for range 3 {
		response, err := http.Get("http://" + p.Address + "/hello")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	// What was not pushed yet is pushed at the end.
	p.Terminate(t)
	p.Ends(t)
	close(pushed)
	accepted, turns := 0.0, 0.0
	for request := range pushed {
		for _, resource := range request.ResourceMetrics {
			for _, scope := range resource.ScopeMetrics {
				for _, metric := range scope.Metrics {
					sum := metric.GetSum()
					for _, point := range sum.GetDataPoints() {
						names := map[string]bool{}
						for _, attribute := range point.Attributes {
							names[attribute.Key] = true
						}
						if !names["loop"] || !names["engine"] {
							t.Errorf("%s: %v", metric.Name, point.Attributes)
						}
						switch metric.Name {
						case "quoit_accepted_total":
							accepted = max(accepted, point.GetAsDouble())
							if !sum.IsMonotonic {
								t.Error("a counter only grows")
							}
						case "quoit_turns_total":
							turns = max(turns, point.GetAsDouble())
						}
					}
				}
			}
		}
	}
	if accepted < 1 || turns < 1 {
		t.Errorf("accepted %v, turns %v", accepted, turns)
	}
}
