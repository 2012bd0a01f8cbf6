//go:build linux && (cgo || quoit_nocgo) && !quoit_static && !quoit_std && (amd64 || arm64)

package quoit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// compiled is a shared library of C, in a file of its own.
func compiled(t *testing.T, path, source string, flags ...string) string {
	t.Helper()
	if err := os.WriteFile(path+".c", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler here") // the tests were built elsewhere
	}
	command := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", path, path + ".c"}, flags...)...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, output)
	}
	return path
}

// forAnotherProcessor is the library as it would be for one: its header says so.
func forAnotherProcessor(t *testing.T, library string) string {
	t.Helper()
	text, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	const place, s390 = 18, 22
	text[place], text[place+1] = s390, 0
	path := filepath.Join(t.TempDir(), "libquoit-s390x.so")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// needing is a library that needs another by this name, which need not be there when it is loaded.
func needing(t *testing.T, name, versions string) string {
	t.Helper()
	folder := t.TempDir()
	flags := []string{"-nostdlib", "-Wl,-soname," + name}
	if versions != "" {
		script := filepath.Join(folder, "versions")
		if err := os.WriteFile(script, []byte(versions), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "-Wl,--version-script="+script)
	}
	needed := compiled(t, filepath.Join(folder, "needed.so"), "int needed(void) { return 0; }", flags...)
	return compiled(t, filepath.Join(folder, "libquoit-other.so"), "int needed(void); int quoit_other(void) { return needed(); }",
		"-nostdlib", needed)
}

// TestALibraryThatDoesNotFitIsExplained has each library that somebody can have taken by mistake: the file is named, what is wrong
// with it, and what to take. Package net serves all the same.
func TestALibraryThatDoesNotFitIsExplained(t *testing.T) {
	library := os.Getenv("QUOIT_LIBRARY")
	if library == "" {
		t.Skip("libquoit is not here; `make go` builds it and names it by QUOIT_LIBRARY")
	}
	abi := func(higher int) string {
		source := fmt.Sprintf(`
			#define _GNU_SOURCE
			#include <dlfcn.h>
			#include <stdint.h>
			int quoit_abi_check(uint32_t asked) { return ((int (*)(uint32_t))dlsym(RTLD_NEXT, "quoit_abi_check"))(asked + %d); }`, higher)
		real, err := filepath.EvalSymlinks(library)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		soname := filepath.Join(folder, "libquoit.so.0")
		if err := os.Symlink(real, soname); err != nil {
			t.Fatal(err)
		}
		return compiled(t, filepath.Join(folder, "libquoit-abi.so"), source, "-Wl,--no-as-needed", soname, "-Wl,-rpath,"+folder, "-ldl")
	}
	for name, of := range map[string]struct {
		path string
		want []string
	}{
		"another processor": {forAnotherProcessor(t, library), []string{"it is for s390x, and this program is for", "package libquoit0"}},
		"musl":              {needing(t, "libc.so", ""), []string{"it is for musl, and this program runs on glibc", "package libquoit0"}},
		"a newer glibc":     {needing(t, "libc.so.6", "GLIBC_2.99 { needed; };"), []string{"GLIBC_2.99", "glibc 2.17", "package libquoit0"}},
		"an older minor":    {abi(1 << 10), []string{"does not belong to github.com/quoit-io/quoit/go", "this program wants version 1.", "but libquoit ", "install a libquoit that fits"}},
		"another major":     {abi(1 << 16), []string{"does not belong to github.com/quoit-io/quoit/go", "this program wants version 2.", "but libquoit ", "install a libquoit that fits"}},
	} {
		t.Run(name, func(t *testing.T) {
			output := withLibrary(t, "TestChildWithoutLibrary", of.path)
			for _, part := range []string{"REQUIRED:", "LOGGED:"} {
				_, rest, _ := strings.Cut(output, part)
				line, _, _ := strings.Cut(rest, "\n")
				for _, want := range append(of.want, of.path) {
					if !strings.Contains(line, want) {
						t.Errorf("%q is not in: %s%s", want, part, line)
					}
				}
			}
		})
	}
}

// TestAnotherLibquoitInTheProcess has one of another version loaded before, whose functions end the process: the one that was named
// is used, and nothing of the other.
func TestAnotherLibquoitInTheProcess(t *testing.T) {
	library := os.Getenv("QUOIT_LIBRARY")
	if library == "" {
		t.Skip("libquoit is not here; `make go` builds it and names it by QUOIT_LIBRARY")
	}
	source := "#include <stdlib.h>\n"
	for _, name := range []string{"abi_check", "version", "layout", "loop_create", "turn", "error_text", "config_default", "socket_bind", "listen"} {
		source += fmt.Sprintf("void quoit_%s(void) { abort(); }\n", name)
	}
	other := compiled(t, filepath.Join(t.TempDir(), "libquoit.so.0"), source, "-Wl,-soname,libquoit.so.0")
	t.Setenv("LD_PRELOAD", other)
	if output := withLibrary(t, "TestChildWithTwoLibraries", library); !strings.Contains(output, "SERVED") {
		t.Error(output)
	}
}

// TestChildWithTwoLibraries is what the process of TestAnotherLibquoitInTheProcess does.
func TestChildWithTwoLibraries(t *testing.T) {
	if os.Getenv("QUOIT_TEST_CHILD") == "" {
		t.Skip("it is run by another test")
	}
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine)
		roundTrip(t, dial(t, server.Addr()), "hello")
	})
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if other := os.Getenv("LD_PRELOAD"); !strings.Contains(string(maps), other) {
		t.Fatalf("%s was not loaded", other)
	}
	t.Log("SERVED")
}
