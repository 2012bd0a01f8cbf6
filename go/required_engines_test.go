//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package quoit_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// Tests leave out an engine that does not run, and would pass without it: QUOIT_TEST_ENGINES names those that must, with
// spaces between them, as in CI.
func TestTheEnginesThatAreRequiredRunHere(t *testing.T) {
	for _, name := range strings.Fields(os.Getenv("QUOIT_TEST_ENGINES")) {
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
