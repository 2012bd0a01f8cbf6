// Command try uses the packed Go modules as somebody does who has never seen the repository: a program in an empty folder takes
// them from the folder that make dist has written, is built with cgo and without, and serves a request, here and in other root
// file systems. Nothing is installed there.
package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

//go:embed served.go.txt
var served []byte

// limit ends what hangs.
const limit = "300"

// build is a way to build the program.
type build struct {
	check string   // its name
	set   []string // of the environment
	zig   string   // what zig compiles for, as its arguments, or none
	musl  bool     // it needs that C library
	arm64 bool     // it is run by QEMU
	stock bool     // it has package net's engine, as it cannot have libquoit
}

// processor is this machine's, by zig's name.
var processor = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

var builds = []build{
	{check: "cgo", set: []string{"CGO_ENABLED=1"}},
	{check: "no cgo", set: []string{"CGO_ENABLED=0"}, stock: true},
	{check: "cgo, glibc", set: []string{"CGO_ENABLED=1"}, zig: "-target " + processor + "-linux-gnu.2.17"},
	// By itself zig makes a static program, which could not load a library.
	{check: "cgo, musl", set: []string{"CGO_ENABLED=1"}, zig: "-target " + processor + "-linux-musl -dynamic", musl: true},
	{check: "cgo, glibc", set: []string{"CGO_ENABLED=1", "GOARCH=arm64"}, zig: "-target aarch64-linux-gnu.2.17", arm64: true},
}

type distribution struct {
	Name, Title string
	Emulated    bool
	Packages    []string
}

// has says whether programs of a build run there: musl is what a distribution has whose packages are for it.
func (d distribution) has(b build) bool {
	musl := slices.Contains(d.Packages, "musl")
	return d.Emulated == b.arm64 && (b.musl && musl || !b.musl && !slices.Equal(d.Packages, []string{"musl"}))
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "dist/go/check: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var list struct{ Distribution []distribution }
	if _, err := toml.DecodeFile("../distributions.toml", &list); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "quoit-go-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "main.go"), served, 0o644); err != nil {
		return err
	}
	begun := time.Now()
	if err := fetch(folder); err != nil {
		tell("this machine", "get", begun, err, "")
		return nil
	}
	tell("this machine", "get", begun, nil, "from a folder, by GOPROXY")
	for number, b := range builds {
		program := filepath.Join(folder, fmt.Sprint("served-", number))
		begun := time.Now()
		if b.zig != "" && zig() == "" {
			leftOut("this machine", b.check, "zig was not found: pip install ziglang")
			continue
		}
		if err := b.compile(folder, program); err != nil {
			tell("this machine", b.check, begun, err, "")
			continue
		}
		if b.zig == "" {
			said, err := b.try(exec.Command("timeout", limit, program))
			tell("this machine", b.check, begun, err, said)
			continue
		}
		for _, d := range list.Distribution {
			if d.has(b) {
				b.tryIn(d, program)
			}
		}
	}
	return nil
}

// tryIn runs the program in a root file system, or by an emulator.
func (b build) tryIn(d distribution, program string) {
	begun := time.Now()
	if b.arm64 {
		const emulator = "qemu-aarch64-static"
		if _, err := exec.LookPath(emulator); err != nil {
			leftOut(d.Title, b.check, emulator+" was not found (Debian: apt install qemu-user-static libc6-arm64-cross)")
			return
		}
		said, err := b.try(exec.Command("timeout", limit, emulator, "-L", "/usr/aarch64-linux-gnu", program))
		tell(d.Title, b.check, begun, err, said)
		return
	}
	root := filepath.Join(os.Getenv("QUOIT_ROOTS"), d.Name)
	if _, err := os.Stat(filepath.Join(root, "bin")); err != nil {
		leftOut(d.Title, b.check, "no root file system in target/dist-roots/"+d.Name)
		return
	}
	if os.Getuid() != 0 {
		leftOut(d.Title, b.check, "chroot(2) needs root")
		return
	}
	there := filepath.Join(root, "tmp", filepath.Base(program))
	text, err := os.ReadFile(program)
	if err = cmp.Or(err, os.WriteFile(there, text, 0o755)); err != nil {
		tell(d.Title, b.check, begun, err, "")
		return
	}
	defer os.Remove(there)
	said, err := b.try(exec.Command("timeout", limit, "chroot", root, "/tmp/"+filepath.Base(program)))
	tell(d.Title, b.check, begun, err, said)
}

// try runs the program, which serves a request to itself, and returns what it has said.
func (b build) try(command *exec.Cmd) (string, error) {
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	output, err := command.CombinedOutput()
	said := strings.TrimSpace(string(output))
	if err == nil && strings.Contains(said, "engine=std") != b.stock {
		err = errors.New("another engine was wanted")
	}
	if version := "libquoit " + os.Getenv("QUOIT_VERSION"); err == nil && !b.stock && !strings.Contains(said, version) {
		err = errors.New(version + " was wanted")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return said, nil
}

// fetch makes a module of the folder, with what its program imports.
func fetch(folder string) error {
	for _, arguments := range [][]string{{"mod", "init", "example.com/served"}, {"mod", "tidy"}} {
		if err := inFolder(folder, nil, arguments...); err != nil {
			return err
		}
	}
	return nil
}

func (b build) compile(folder, program string) error {
	set := b.set
	if b.zig != "" {
		set = append(set, "CC="+zig()+" cc "+b.zig)
	}
	return inFolder(folder, set, "build", "-trimpath", "-o", program, ".")
}

// inFolder runs a command of go, with modules from what is packed and from nowhere else.
func inFolder(folder string, set []string, arguments ...string) error {
	command := exec.Command("go", arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(),
		"GOPROXY=file://"+filepath.Join(os.Getenv("QUOIT_DIST"), "go-proxy"), "GONOSUMDB=*", "GOTOOLCHAIN=local", "GOWORK=off",
		"GOMODCACHE="+filepath.Join(folder, "modules"), "GOFLAGS=-modcacherw")
	command.Env = append(command.Env, set...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return nil
}

// zig is how that compiler is called; empty if it is not there.
func zig() string {
	for _, command := range []string{"zig", "python3 -m ziglang"} {
		if words := append(strings.Fields(command), "version"); exec.Command(words[0], words[1:]...).Run() == nil {
			return command
		}
	}
	return ""
}

// leftOut prints a line for a check that was not made.
func leftOut(where, check, why string) {
	fmt.Printf("%s\tGo modules\t%s\tleft out\t0\t%s\n", where, check, why)
}

// tell prints a line for a check.
func tell(where, check string, begun time.Time, err error, found string) {
	outcome := "passed"
	if err != nil {
		outcome, found = "failed", err.Error()
	}
	oneLine := strings.Join(strings.Fields(found), " ")
	fmt.Printf("%s\tGo modules\t%s\t%s\t%.1f\t%s\n", where, check, outcome, time.Since(begun).Seconds(), oneLine)
}
