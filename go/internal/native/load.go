//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package native

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"os"
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
	var text text
	if inside != nil {
		if reason := open(named); reason != nil {
			return missing(file, named != "", reason, inside)
		}
	}
	if C.shim_abi_check(text.pointer()) < 0 {
		return fmt.Errorf("%s does not belong to %s: %s", file, ourselves(), &text)
	}
	if err := checkLayout(C.GoString(C.shim_layout())); err != nil {
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

// open opens a file; an empty path is that of the system.
func open(path string) error {
	var text text
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.shim_open(name, text.pointer()) < 0 {
		return errors.New(text.String())
	}
	return nil
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

func onGlibc() bool { return C.shim_on_glibc() != 0 }

func openMemory(library []byte) error {
	var text text
	file := C.shim_memory_file(unsafe.Pointer(unsafe.SliceData(library)), C.size_t(len(library)), text.pointer())
	if file < 0 {
		return errors.New(text.String())
	}
	defer syscall.Close(int(file))
	return open(fmt.Sprintf("/proc/self/fd/%d", file))
}

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

// Version is the library's own version.
func Version() string { return C.GoString(C.shim_version()) }

// text is room for the text of a failed call.
type text [C.SHIM_TEXT]byte

func (t *text) pointer() *C.char { return (*C.char)(unsafe.Pointer(t)) }

func (t *text) String() string {
	end := bytes.IndexByte(t[:], 0)
	if end < 0 {
		end = len(t)
	}
	return string(t[:end])
}

func (t *text) failure(call string, code C.int) error {
	return &Error{Call: call, Errno: errno(int(code)), Text: t.String()}
}
