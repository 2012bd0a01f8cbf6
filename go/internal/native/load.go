//go:build linux && !quoit_std && (amd64 || arm64)

package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/embedded"
)

const (
	available = true
	whyNot    = ""
)

// LibraryVariable names the environment's variable that says which file to open instead of libquoit.so.0 from the
// system's path.
const LibraryVariable = "QUOIT_LIBRARY"

// Load makes the library usable: opens it where it was not linked in, and checks its version and its layout. It is
// done once; later calls return what the first did. Call it before anything else of this package.
func Load() error { return loaded() }

var loaded = sync.OnceValue(load)

func load() error {
	if err := callable(); err != nil {
		return err
	}
	file := "libquoit.so.0"
	named := os.Getenv(LibraryVariable)
	if named != "" {
		file = named
	}
	if Static {
		file = "the linked libquoit.a"
	}
	inside := errNotInside
	if named == "" && !Static {
		if inside = openInside(); inside == nil {
			file = "the libquoit inside this program"
		}
	}
	if inside != nil {
		if reason := open(named); reason != nil {
			return missing(file, named != "", reason, inside)
		}
	}
	if err := abiCheck(); err != nil {
		return fmt.Errorf("%s does not belong to %s: %w", file, ourselves(), err)
	}
	if err := checkLayout(layout()); err != nil {
		return fmt.Errorf("%s, libquoit %s, does not belong to %s: %w; install a libquoit that fits", file, Version(), ourselves(), err)
	}
	return nil
}

// ourselves names this module, and the version that the program was built with; there is none in the repository's own programs.
func ourselves() string {
	const path = "github.com/quoit-io/quoit/go"
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range append(build.Deps, &build.Main) {
			if module.Path == path && module.Version != "" && module.Version != "(devel)" {
				return path + " " + module.Version
			}
		}
	}
	return path
}

// errNotInside says that the program has no library inside it.
var errNotInside = errors.New("")

// openInside opens the library that the program carries: from memory, or else from a file that is gone again.
func openInside() error {
	name := embedded.Musl
	if onGlibc() {
		name = embedded.Glibc
	}
	library, module, err := embedded.Read(name)
	switch {
	case module == "":
		return errNotInside
	case err != nil:
		return fmt.Errorf("%s has no %s: take a released version of it, or build it by `make dist`", module, name)
	}
	fromMemory := openMemory(library)
	if fromMemory == nil {
		return nil
	}
	fromFile := openTemporary(library)
	if fromFile == nil {
		return nil
	}
	return fmt.Errorf("that of %s: %w, and as a file: %w%s", module, fromMemory, fromFile, misfit(library, fromFile.Error(), onGlibc()))
}

func openMemory(library []byte) error {
	file, err := memoryFile(library)
	if err != nil {
		return err
	}
	defer syscall.Close(file)
	return open(fmt.Sprintf("/proc/self/fd/%d", file))
}

// memoryFile is a descriptor of a file in memory that has these bytes and can be run.
func memoryFile(library []byte) (int, error) {
	// Of memfd_create(2); the second is since Linux 6.3.
	const closeOnExec, executable = 0x1, 0x10
	// The name is what maps and debuggers show. Where vm.memfd_noexec is set, a file has to be asked for as one to run.
	name := []byte("libquoit.so\x00")
	create := func(flags uintptr) (uintptr, syscall.Errno) {
		file, _, errno := syscall.Syscall(memfdCreate[runtime.GOARCH], uintptr(unsafe.Pointer(&name[0])), flags, 0)
		return file, errno
	}
	file, errno := create(closeOnExec | executable)
	if errno == syscall.EINVAL {
		file, errno = create(closeOnExec)
	}
	if errno != 0 {
		return -1, fmt.Errorf("memfd_create: %w", errno)
	}
	for len(library) > 0 {
		written, err := syscall.Write(int(file), library)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Close(int(file))
			return -1, fmt.Errorf("writing to a file in memory: %w", err)
		}
		library = library[written:]
	}
	return int(file), nil
}

// memfdCreate is the number of memfd_create(2), which package syscall lacks.
var memfdCreate = map[string]uintptr{"amd64": 319, "arm64": 279}

// openTemporary is for where there is no memory to run from, or no /proc to name it by.
func openTemporary(library []byte) error {
	file, err := os.CreateTemp("", "libquoit-*.so")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(library)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return open(file.Name())
}

// missing says why there is no library: none on the system, as reason has it, and none inside the program.
func missing(file string, named bool, reason, inside error) error {
	if named {
		return fmt.Errorf("%s, named by %s, cannot be used: %w%s; let the variable name a libquoit.so for this machine: that of the "+
			"package libquoit0, or what `make capi` of the Quoit repository builds (target/capi/lib/libquoit.so)",
			file, LibraryVariable, reason, misfitOf(file, reason.Error(), onGlibc()))
	}
	before := ""
	if inside != errNotInside {
		before = fmt.Sprintf("the libquoit inside this program cannot be used, %v; ", inside)
	}
	return fmt.Errorf("%s%s cannot be used, looked for on the system's path (LD_LIBRARY_PATH, ld.so.conf, /lib, /usr/lib): "+
		"%w; install the package libquoit0, import a module of github.com/quoit-io/quoit/go/lib, or let %s name the file",
		before, file, reason, LibraryVariable)
}

// text is room for the text of a failed call.
type text [textSize]byte

func (t *text) String() string {
	end := bytes.IndexByte(t[:], 0)
	if end < 0 {
		end = len(t)
	}
	return string(t[:end])
}

func (t *text) failure(call string, code int) error {
	return &Error{Call: call, Errno: syscall.Errno(-code), Text: t.String()}
}
