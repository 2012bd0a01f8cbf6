//go:build linux && (cgo || quoit_nocgo) && !quoit_static && !quoit_std && (amd64 || arm64)

package quoit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unsafe"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/internal/embedded"
)

// denyMemoryFiles makes memfd_create(2) fail as seccomp profiles have it.
func denyMemoryFiles(t *testing.T) {
	t.Helper()
	number := map[string]uint32{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	const load, equal, give = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, syscall.BPF_RET | syscall.BPF_K
	const fails, allowed = 0x0005_0000 | uint32(syscall.EPERM), 0x7fff_0000 // SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
	filter := []syscall.SockFilter{{Code: load}, {Code: equal, Jf: 1, K: number}, {Code: give, K: fails}, {Code: give, K: allowed}}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const noNewPrivileges = 38
	runtime.LockOSThread() // the filter goes to all threads at once, and what allows it with them
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	seccomp := map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	const setFilter, allThreads = 1, 1
	if _, _, errno := syscall.RawSyscall(seccomp, setFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 {
		t.Fatal(errno)
	}
}

// TestChildWithALibraryInside is what the processes of TestALibraryInsideTheProgram do.
func TestChildWithALibraryInside(t *testing.T) {
	path := os.Getenv("QUOIT_TEST_INSIDE")
	if path == "" {
		t.Skip("it is run by another test")
	}
	files := fstest.MapFS{"libraries/README.md": {Data: []byte("nothing else")}}
	if library, err := os.ReadFile(path); err == nil {
		files["libraries/"+embedded.Glibc] = &fstest.MapFile{Data: library}
		files["libraries/"+embedded.Musl] = &fstest.MapFile{Data: library}
	}
	embedded.Register("the/module", files, "libraries")
	if os.Getenv("QUOIT_TEST_DENIED") != "" {
		denyMemoryFiles(t)
	}
	server, err := quoit.Start("127.0.0.1:0", echoes(), quiet(), quoit.WithEngine(quoit.EngineEpoll))
	if err != nil {
		t.Log("NONE:", err)
		// Where nothing is required, package net serves.
		server := start(t, echoes())
		roundTrip(t, dial(t, server.Addr()), "hello")
		if engine := server.Loops().Engine(); engine != quoit.EngineStd {
			t.Errorf("%v serves without a library", engine)
		}
		return
	}
	connection := dial(t, server.Addr())
	roundTrip(t, connection, "hello")
	connection.Close()
	shutDown(t, server)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "libquoit") {
			t.Log("FROM:", line)
			return
		}
	}
	t.Error("it serves without a library")
}

// mounted is a folder, and the command by which a program runs where an empty file system is mounted on it, with these options.
func mounted(t *testing.T, options string) (folder string, command []string) {
	t.Helper()
	folder = t.TempDir()
	command = []string{"unshare", "--mount", "--map-root-user", "sh", "-c", "mount -t tmpfs -o " + options + " none " + folder + ` && exec "$0" "$@"`}
	if output, err := exec.Command(command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v, %s", err, output)
	}
	return folder, command
}

func TestWithoutMemoryFilesTheFolderDecides(t *testing.T) {
	library := os.Getenv("QUOIT_LIBRARY")
	if library == "" {
		t.Skip("libquoit is not here; `make go` builds it and names it by QUOIT_LIBRARY")
	}
	library, err := filepath.Abs(library)
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string]string{"noexec": "is mounted noexec", "ro": "read-only file system"} {
		t.Run(options, func(t *testing.T) {
			folder, arguments := mounted(t, options)
			child := func(set ...string) string {
				command := exec.Command(arguments[0], append(arguments[1:], os.Args[0], "-test.run", "^TestChildWithALibraryInside$", "-test.v")...)
				command.Env = append(os.Environ(), append(set, "QUOIT_LIBRARY=", "QUOIT_TEST_INSIDE="+library, "TMPDIR="+folder)...)
				output, err := command.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, output)
				}
				return string(output)
			}
			if output := child(); !strings.Contains(output, "/memfd:libquoit.so") {
				t.Errorf("it is not loaded from memory: %s", output)
			}
			output := child("QUOIT_TEST_DENIED=1")
			for _, part := range []string{"NONE:", "the/module", "memfd_create: operation not permitted", folder + "/libquoit-", want, "package libquoit0"} {
				if !strings.Contains(output, part) {
					t.Errorf("%q is not in:\n%s", part, output)
				}
			}
		})
	}
}

func TestALibraryInsideTheProgram(t *testing.T) {
	library := os.Getenv("QUOIT_LIBRARY")
	if library == "" {
		t.Skip("libquoit is not here; `make go` builds it and names it by QUOIT_LIBRARY")
	}
	library, err := filepath.Abs(library)
	if err != nil {
		t.Fatal(err)
	}
	noLibrary := filepath.Join(t.TempDir(), "nolibrary.so")
	if err := os.WriteFile(noLibrary, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		inside string
		set    []string
		want   []string
	}{
		"from memory":               {library, nil, []string{"FROM:", "/memfd:libquoit.so"}},
		"nowhere to write":          {library, []string{"TMPDIR=/nothing"}, []string{"FROM:", "/memfd:libquoit.so"}},
		"for another processor":     {forAnotherProcessor(t, library), nil, []string{"NONE:", "the/module", "it is for s390x", "package libquoit0"}},
		"from a file":               {library, []string{"QUOIT_TEST_DENIED=1"}, []string{"FROM:", "/libquoit-", "(deleted)"}},
		"neither":                   {library, []string{"QUOIT_TEST_DENIED=1", "TMPDIR=/nothing"}, []string{"NONE:", "the/module", "memfd_create: operation not permitted", "/nothing/libquoit-", "libquoit.so.0"}},
		"a module without it":       {"/nothing", nil, []string{"NONE:", "the/module has no libquoit-", "make dist"}},
		"no library":                {noLibrary, nil, []string{"NONE:", "the/module", "libquoit.so.0"}},
		"a named one goes before":   {noLibrary, []string{"QUOIT_LIBRARY=" + library}, []string{"FROM:", library}},
		"a named one that is wrong": {library, []string{"QUOIT_LIBRARY=" + noLibrary}, []string{"NONE:", "nolibrary.so, named by QUOIT_LIBRARY"}},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run", "^TestChildWithALibraryInside$", "-test.v")
			command.Env = append(os.Environ(), append([]string{"QUOIT_LIBRARY=", "QUOIT_TEST_INSIDE=" + of.inside}, of.set...)...)
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for _, want := range of.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("%q is not in:\n%s", want, output)
				}
			}
		})
	}
}
