// Program typecheck finds what does not compile on other systems, in the packages of the module that it is run in.
//
// It takes the names of systems as GOOS has them, and checks every package as it is for each, without cgo, with its tests and all that
// it imports. Everything is read from source: go vet finds more, but first compiles the standard library for each system, which takes
// fifteen times as long.
//
// It exits with 0 if there is nothing to say, with 1 if something does not compile, and with 2 if it could not look.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS...")
		os.Exit(2)
	}
	found := 0
	for _, system := range os.Args[1:] {
		faults, err := check(system, ".", os.Stdout)
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck: %s: %v\n", system, err)
			os.Exit(2)
		}
		found += faults
	}
	if found > 0 {
		os.Exit(1)
	}
}

// check writes the faults of all packages below root, which is in a module, a line each, and returns how many there are. What the
// packages import is found as the process's own module and system have it, so that only one check may run at a time.
func check(system, root string, faults io.Writer) (int, error) {
	list := exec.Command("go", "list", "-f", "{{.Dir}}", "./...")
	list.Dir = root
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	folders, err := list.Output()
	if err != nil {
		return 0, fmt.Errorf("go list: %w", err)
	}
	// The importer has no other way to be told.
	build.Default.GOOS = system
	build.Default.CgoEnabled = false
	checker := checker{system: system, files: token.NewFileSet(), faults: faults}
	checker.imports = importer.ForCompiler(checker.files, "source", nil)
	for _, folder := range strings.Fields(string(folders)) {
		if err := checker.folder(folder); err != nil {
			return 0, err
		}
	}
	return checker.found, nil
}

type checker struct {
	system  string
	files   *token.FileSet
	imports types.Importer
	faults  io.Writer
	found   int
}

func (c *checker) fault(err error) {
	c.found++
	fmt.Fprintf(c.faults, "%s: %v\n", c.system, err)
}

// folder checks the package in a folder together with its tests, and the package of tests beside it.
func (c *checker) folder(folder string) error {
	found, err := build.ImportDir(folder, 0)
	var none *build.NoGoError
	if errors.As(err, &none) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	for _, names := range [][]string{append(found.GoFiles, found.TestGoFiles...), found.XTestGoFiles} {
		var parsed []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(c.files, filepath.Join(folder, name), nil, parser.SkipObjectResolution)
			if err != nil {
				c.fault(err)
			}
			// What could be read of it, so that its other faults are told too.
			if file != nil {
				parsed = append(parsed, file)
			}
		}
		config := types.Config{Importer: c.imports, Error: c.fault}
		// Each fault has been told.
		_, _ = config.Check(folder, c.files, parsed, nil)
	}
	return nil
}
