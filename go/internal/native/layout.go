package native

import (
	_ "embed"
	"fmt"
	"strings"
)

// layoutText is the copy of quoit-layout.txt that this package was written for.
//
//go:embed quoit-layout.txt
var layoutText string

// checkLayout compares the library's layout with this package's copy: each line of the copy must be among the
// library's, but for the sizes of structures that begin with `size`, which may have grown.
func checkLayout(library string) error {
	lines := make(map[string]struct{})
	for line := range strings.Lines(library) {
		lines[strings.TrimSpace(line)] = struct{}{}
	}
	grows := make(map[string]bool)
	for line := range strings.Lines(layoutText) {
		if words := strings.Fields(line); len(words) == 5 && words[0] == "field" && words[2] == "size" && words[3] == "0" {
			grows[words[1]] = true
		}
	}
	for line := range strings.Lines(layoutText) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		words := strings.Fields(line)
		if words[0] == "struct" && grows[words[1]] || words[0] == "constant" && words[1] == "QUOIT_ABI_MINOR" {
			continue
		}
		if _, found := lines[line]; !found {
			return fmt.Errorf("its layout lacks %q: it is libquoit of another version", line)
		}
	}
	return nil
}
