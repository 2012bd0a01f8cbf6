package prometheus_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/prometheus"
)

type echo struct{ quoit.BaseHandler }

func (echo) OnData(c *quoit.Conn) { c.WriteTo(c) }

func TestCountersAreExported(t *testing.T) {
	for _, engine := range []quoit.Engine{quoit.EngineAuto, quoit.EngineStd} {
		server, err := quoit.Start("127.0.0.1:0", echo{}, quoit.WithEngine(engine), quoit.WithLoops(2),
			quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		connection, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		connection.Write([]byte("x"))
		if _, err := connection.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		registry := client.NewPedanticRegistry()
		registry.MustRegister(prometheus.NewCollector(server.Loops()))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		accepted := 0.0
		for _, family := range families {
			if family.GetName() == "quoit_accepted_total" {
				for _, metric := range family.Metric {
					accepted += metric.Counter.GetValue()
				}
			}
		}
		if accepted != 1 {
			t.Errorf("%v: %v connections were accepted", server.Loops().Engine(), accepted)
		}
		problems, err := testutil.GatherAndLint(registry)
		for _, problem := range problems {
			if !strings.Contains(problem.Text, "abbreviated") {
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		}
		if err != nil {
			t.Error(err)
		}
		connection.Close()
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// Several groups of loops are told apart in one registry, such as those of a server and of its clients; also when some have ended.
func TestGroupsOfLoopsAreToldApart(t *testing.T) {
	engines := []quoit.Engine{quoit.EngineAuto, quoit.EngineStd, quoit.EngineAuto, quoit.EngineStd}
	registry := client.NewPedanticRegistry()
	var open []*quoit.Loops
	series := func(want int) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "quoit_connections" && len(family.Metric) != want {
				t.Errorf("%d loops, and not %d", len(family.Metric), want)
			}
		}
	}
	add := func(engine quoit.Engine) {
		loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(2), quoit.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		registry.MustRegister(prometheus.NewCollector(loops))
		open = append(open, loops)
	}
	for _, engine := range engines {
		add(engine)
	}
	series(2 * len(engines))
	for _, loops := range open[:2] {
		if err := loops.Close(); err != nil {
			t.Error(err)
		}
	}
	series(2 * (len(engines) - 2))
	for _, engine := range engines[:2] {
		add(engine)
	}
	series(2 * len(engines))
	for _, loops := range open[2:] {
		if err := loops.Close(); err != nil {
			t.Error(err)
		}
	}
}
