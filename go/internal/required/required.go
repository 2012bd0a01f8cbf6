// Package required keeps tests from leaving out an engine that must run.
package required

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Names are the engines that QUOIT_TEST_ENGINES names, with spaces between them: as in CI, where none may drop out. In a build
// that cannot have libquoit there are none.
func Names() []string {
	if !hasLibrary {
		return nil
	}
	return strings.Fields(os.Getenv("QUOIT_TEST_ENGINES"))
}

// Skip leaves a test of an engine out, which has failed to start, if nobody requires that engine.
func Skip(t *testing.T, engine interface{ String() string }, err error) {
	t.Helper()
	if engine.String() == "std" || slices.Contains(Names(), engine.String()) {
		t.Fatalf("%s is required, and does not run here: %v", engine, err)
	}
	t.Skip(err)
}
