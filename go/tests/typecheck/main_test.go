package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes files into a module of its own and goes there.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	files["go.mod"] = "module example.com/checked\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func faults(t *testing.T, system string) string {
	t.Helper()
	var said strings.Builder
	found, err := check(system, ".", &said)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(said.String(), "\n"); lines != found {
		t.Errorf("%d faults were counted, and %d written:\n%s", found, lines, &said)
	}
	return said.String()
}

func TestEachSystemHasItsFaults(t *testing.T) {
	module(t, map[string]string{
		"package.go":         "package checked\n\nimport \"example.com/checked/below\"\n\nvar _ = below.Of\n",
		"only_windows.go":    "package checked\n\nvar _ int = \"no number\"\n",
		"below/of_linux.go":  "package below\n\nvar Of = 1\n",
		"below/of_darwin.go": "package below\n\nvar of = 1\n",
		"below/of_windows.go": "package below\n\nimport \"syscall\"\n\n// A handle is a number there alone.\n" +
			"var Of = uintptr(syscall.Stdin)\n",
	})
	if said := faults(t, "linux"); said != "" {
		t.Errorf("on Linux: %s", said)
	}
	if said := faults(t, "darwin"); !strings.Contains(said, "darwin: ") || !strings.Contains(said, "below.Of") {
		t.Errorf("on macOS, where Of is not exported: %q", said)
	}
	if said := faults(t, "windows"); !strings.Contains(said, "only_windows.go:3:13") || strings.Contains(said, "below") {
		t.Errorf("on Windows, where a number is none: %q", said)
	}
}

func TestTestsAreCheckedToo(t *testing.T) {
	module(t, map[string]string{
		"package.go":           "package checked\n",
		"inside_test.go":       "package checked\n\nvar _ = missingInside\n",
		"outside_test.go":      "package checked_test\n\nvar _ = missingOutside\n",
		"for_windows_test.go":  "package checked\n\nvar _ = missingThere\n",
		"testdata/ignored.go":  "package ignored\n\nvar _ = missing\n",
		"underscore/_left.go":  "package left\n\nvar _ = missing\n",
		"underscore/there.txt": "no Go file is in this folder\n",
	})
	for system, names := range map[string][]string{
		"darwin":  {"missingInside", "missingOutside"},
		"windows": {"missingInside", "missingOutside", "missingThere"},
	} {
		said := faults(t, system)
		for _, name := range names {
			if !strings.Contains(said, "undefined: "+name+"\n") {
				t.Errorf("%s: nothing about %s: %q", system, name, said)
			}
		}
		if lines := strings.Count(said, "\n"); lines != len(names) {
			t.Errorf("%s: %d faults in place of %d: %q", system, lines, len(names), said)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	module(t, map[string]string{"package.go": "package checked\n", "other.go": "package another\n"})
	if found, err := check("windows", ".", os.Stderr); err == nil {
		t.Errorf("two packages in one folder: %d faults, and no error", found)
	}
}
