package quoit

// Counter is the value of one of a loop's counters.
type Counter struct {
	Name  string // as in docs/metrics.md, such as turns or received_bytes
	About string // one line
	Gauge bool   // the present value; otherwise it only grows
	Value uint64
}

// Counters is a snapshot of one loop's counters, in the library's order.
type Counters []Counter

// Get returns the value of a counter; 0 for a name that there is not.
func (c Counters) Get(name string) uint64 {
	for index := range c {
		if c[index].Name == name {
			return c[index].Value
		}
	}
	return 0
}

// Counters returns a snapshot of every loop's counters. While a loop runs two of its figures may be of moments a little
// apart. On EngineStd there are only those that package net leaves to be counted.
func (l *Loops) Counters() []Counters {
	all := make([]Counters, len(l.loops))
	for index, loop := range l.loops {
		all[index] = loop.counters()
	}
	return all
}
