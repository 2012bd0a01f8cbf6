package tests

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	// For go.mod, as blocks import them.
	_ "github.com/quoit-io/quoit/go/lib/linux_amd64"
	_ "github.com/quoit-io/quoit/go/lib/linux_arm64"
	_ "github.com/quoit-io/quoit/go/nocgo"
)

// Packages that a block may use without importing them.
var preamble = []string{
	"context",
	"net/http",
	"github.com/quoit-io/quoit/go",
	"github.com/quoit-io/quoit/go/loophttp",
}

// Packages that a block may import, beside those.
var importable = []string{
	"github.com/quoit-io/quoit/go/lib/linux_amd64",
	"github.com/quoit-io/quoit/go/lib/linux_arm64",
	"github.com/quoit-io/quoit/go/nocgo",
}

// What a fragment has from the program around it.
const around = "func _(ctx context.Context, mux *http.ServeMux) {\n"

var goBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$")

// The blocks in the documents compile, as far as their types go: names that a fragment declares need no use.
func TestBlocksOfDocumentsCompile(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	files := token.NewFileSet()
	libraries := importer.ForCompiler(files, "gc", exports(t))
	for _, document := range append(documents, "../../README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range goBlock.FindAllSubmatchIndex(text, -1) {
			found++
			line := 1 + bytes.Count(text[:place[2]], []byte("\n"))
			name := fmt.Sprintf("%s:%d", filepath.Base(document), line)
			t.Run(name, func(t *testing.T) {
				file, err := parse(files, name, string(text[place[2]:place[3]]))
				if err != nil {
					t.Fatal(err)
				}
				check(t, files, libraries, file)
			})
		}
	}
	if found == 0 {
		t.Error("there is no block")
	}
}

// parse takes a block as a file, as declarations or as statements.
func parse(files *token.FileSet, name, block string) (*ast.File, error) {
	imports := &strings.Builder{}
	imports.WriteString("package p\n")
	for _, path := range preamble {
		fmt.Fprintf(imports, "import %q\n", path)
	}
	line := fmt.Sprintf("//line %s\n", name)
	var err error
	for _, source := range []string{
		line + block,
		imports.String() + line + block,
		imports.String() + around + line + block + "}\n",
	} {
		var file *ast.File
		if file, err = parser.ParseFile(files, name, source, parser.SkipObjectResolution); err == nil {
			return file, nil
		}
	}
	return nil, err
}

func check(t *testing.T, files *token.FileSet, libraries types.Importer, file *ast.File) {
	t.Helper()
	config := types.Config{Importer: libraries, Error: func(err error) {
		var fault types.Error
		if !errors.As(err, &fault) || !fault.Soft {
			t.Error(err)
		}
	}}
	config.Check("p", files, []*ast.File{file}, nil) // which reports its errors one by one
}

// exports opens what the compiler has written of a package, for all that blocks may import.
func exports(t *testing.T) importer.Lookup {
	t.Helper()
	list := exec.Command("go", slices.Concat([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, preamble, importable)...)
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for line := range strings.Lines(string(output)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		written[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if file := written[path]; file != "" {
			return os.Open(file)
		}
		return nil, fmt.Errorf("%s is not among what blocks may import: see `preamble` and `importable`", path)
	}
}
