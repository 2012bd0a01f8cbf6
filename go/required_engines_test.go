package quoit_test

import (
	"slices"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/required"
)

// Tests leave out an engine that does not run, and would pass without it.
func TestTheEnginesThatAreRequiredRunHere(t *testing.T) {
	for _, name := range required.Names() {
		engine, err := quoit.ParseEngine(name)
		if err != nil {
			t.Error(err)
		} else if !slices.Contains(engines(), engine) {
			loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(1), quiet())
			if err == nil {
				loops.Close()
			}
			t.Errorf("%s is required, and does not run here: %v", name, err)
		}
	}
}
