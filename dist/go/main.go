// Command go packs the Go modules as a proxy has them, so that GOPROXY=file://.../go-proxy serves them: what the tags of a release
// have. Modules of the repository require each other in the version that is packed, and those below lib have their libraries.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// base is the path of the first module; those of the others begin with it.
const base = "github.com/quoit-io/quoit/go"

// modules are what users import, by their folders below go.
var modules = []string{"", "fasthttp", "prometheus", "nocgo", "lib/linux_amd64", "lib/linux_arm64"}

// libraries are what a module carries: the name inside it, and the target whose library that is.
var libraries = map[string]map[string]string{
	"lib/linux_amd64": {"libquoit-glibc.so": "x86_64-unknown-linux-gnu", "libquoit-musl.so": "x86_64-unknown-linux-musl"},
	"lib/linux_arm64": {"libquoit-glibc.so": "aarch64-unknown-linux-gnu", "libquoit-musl.so": "aarch64-unknown-linux-musl"},
}

type packer struct {
	root    string // of the repository
	out     string
	built   string // the libraries, by their targets
	version string
	time    time.Time
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "dist/go/pack: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w; run this by `make dist`", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	p := packer{
		root: root, out: filepath.Join(os.Getenv("QUOIT_DIST"), "go-proxy"), built: os.Getenv("QUOIT_LIBRARIES"),
		version: "v" + os.Getenv("QUOIT_VERSION"), time: time.Unix(epoch, 0).UTC(),
	}
	if err := os.RemoveAll(p.out); err != nil {
		return err
	}
	for _, folder := range modules {
		if err := p.pack(folder); err != nil {
			return fmt.Errorf("the module in go/%s: %w", folder, err)
		}
	}
	return nil
}

// pack writes a module's version: what it is, its go.mod, and its files.
func (p *packer) pack(folder string) error {
	from := filepath.Join(p.root, "go", folder)
	text, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	requirements, err := p.released(text)
	if err != nil {
		return err
	}
	files, err := p.files(folder, from, requirements)
	if err != nil {
		return err
	}
	version := module.Version{Path: modulePath(folder), Version: p.version}
	escaped, err := module.EscapePath(version.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(p.out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{p.version, p.time})
	if err != nil {
		return err
	}
	archive := &bytes.Buffer{}
	if err := zip.Create(archive, version, files); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list": []byte(p.version + "\n"), p.version + ".info": info, p.version + ".mod": requirements, p.version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func modulePath(folder string) string {
	if folder == "" {
		return base
	}
	return base + "/" + folder
}

// released is a go.mod as a release has it: others of the repository in this version, and none in a folder beside.
func (p *packer) released(text []byte) ([]byte, error) {
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, err
	}
	for _, requirement := range file.Require {
		if path := requirement.Mod.Path; path == base || strings.HasPrefix(path, base+"/") {
			if err := file.AddRequire(path, p.version); err != nil {
				return nil, err
			}
		}
	}
	for _, replacement := range file.Replace {
		if err := file.DropReplace(replacement.Old.Path, replacement.Old.Version); err != nil {
			return nil, err
		}
	}
	file.Cleanup()
	return file.Format()
}

// files are those of a module, without those of modules below it and those of tests' folders, and with the licences.
func (p *packer) files(folder, from string, requirements []byte) ([]zip.File, error) {
	files := []zip.File{content{"go.mod", requirements}}
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if name != "." && !errors.Is(err, fs.ErrNotExist) {
				return fs.SkipDir // another module
			}
			return nil
		}
		if name == "go.mod" || filepath.Ext(name) == ".so" || !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		files = append(files, content{filepath.ToSlash(name), text})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, licence := range []string{"LICENSE", "LICENSE-APACHE", "LICENSE-MIT"} {
		text, err := os.ReadFile(filepath.Join(p.root, licence))
		if err != nil {
			return nil, err
		}
		files = append(files, content{licence, text})
	}
	for name, target := range libraries[folder] {
		library, err := os.ReadFile(filepath.Join(p.built, target, "lib", "libquoit.so"))
		if err != nil {
			return nil, err
		}
		files = append(files, content{"libraries/" + name, library})
	}
	slices.SortFunc(files, func(a, b zip.File) int { return strings.Compare(a.Path(), b.Path()) })
	return files, nil
}

// content is a file of an archive, and what is known of it.
type content struct {
	name string
	text []byte
}

func (c content) Path() string { return c.name }

func (c content) Lstat() (os.FileInfo, error) { return c, nil }

func (c content) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.text)), nil }

func (c content) Name() string     { return filepath.Base(c.name) }
func (c content) Size() int64      { return int64(len(c.text)) }
func (content) Mode() fs.FileMode  { return 0o644 }
func (content) ModTime() time.Time { return time.Time{} }
func (content) IsDir() bool        { return false }
func (content) Sys() any           { return nil }
