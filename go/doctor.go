package quoit

import (
	"fmt"
	"io"
)

// Diagnosis says which engine EngineAuto takes on this machine, and why.
type Diagnosis struct {
	Engine   Engine
	Reason   string // one line; where something is missing, what, and the remedy
	Library  string // version of libquoit; empty where it cannot be used
	Features []Feature
}

// Feature is a feature of io_uring that libquoit uses where the kernel has it.
type Feature struct {
	Name          string // for Without
	About         string
	MinimumKernel string // the first mainline one
	Usable        bool
	Reason        string // why it is not usable
}

// Doctor finds out what runs here, as NewLoops would: it makes a ring and drops it. It takes milliseconds.
func Doctor() Diagnosis { return diagnose() }

// WriteTo writes the diagnosis as text, a line an item. It implements io.WriterTo.
func (d Diagnosis) WriteTo(w io.Writer) (int64, error) {
	library := d.Library
	if library == "" {
		library = "not usable"
	}
	written, err := fmt.Fprintf(w, "engine    %v\nreason    %s\nlibquoit  %s\n", d.Engine, d.Reason, library)
	total := int64(written)
	for _, feature := range d.Features {
		if err != nil {
			break
		}
		state := "usable"
		if !feature.Usable {
			state = "missing: " + feature.Reason
		}
		written, err = fmt.Fprintf(w, "feature   %s (Linux %s): %s\n", feature.Name, feature.MinimumKernel, state)
		total += int64(written)
	}
	return total, err
}
