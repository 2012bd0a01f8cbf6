// Package prometheus exports the counters of quoit's loops.
//
//	registry.MustRegister(prometheus.NewCollector(server.Loops()))
package prometheus

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	quoit "github.com/quoit-io/quoit/go"
)

// Collector is a prometheus.Collector of the counters of loops: quoit_NAME_total for those that only grow, quoit_NAME
// for the others, with the labels `loop`, its number in the process (Loops.Number), and `engine`.
type Collector struct {
	loops *quoit.Loops
}

// NewCollector makes a collector of loops, which may be registered once for each group of loops.
func NewCollector(loops *quoit.Loops) *Collector { return &Collector{loops} }

// Describe implements prometheus.Collector. It describes nothing, which makes the collector an unchecked one: what
// counters there are is known by the library that runs.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	engine := c.loops.Engine().String()
	for index, counters := range c.loops.Counters() {
		number := strconv.Itoa(c.loops.Number(index))
		for _, counter := range counters {
			name, kind := "quoit_"+counter.Name+"_total", prometheus.CounterValue
			if counter.Gauge {
				name, kind = "quoit_"+counter.Name, prometheus.GaugeValue
			}
			description := prometheus.NewDesc(name, counter.About, []string{"loop", "engine"}, nil)
			metrics <- prometheus.MustNewConstMetric(description, kind, float64(counter.Value), number, engine)
		}
	}
}
