//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package native

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"unsafe"
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
	var text text
	path := C.CString(named)
	defer C.free(unsafe.Pointer(path))
	if C.shim_open(path, text.pointer()) < 0 {
		return missing(file, named != "", text.String())
	}
	if C.shim_abi_check(text.pointer()) < 0 {
		return fmt.Errorf("%s: %s; install the libquoit that belongs to this module's version", file, &text)
	}
	if err := checkLayout(C.GoString(C.shim_layout())); err != nil {
		return fmt.Errorf("%s: %w; install the libquoit that belongs to this module's version", file, err)
	}
	return nil
}

func missing(file string, named bool, reason string) error {
	if named {
		return fmt.Errorf("%s, named by %s, cannot be used: %s; let the variable name a libquoit.so for this machine, "+
			"as `make capi` of the Quoit repository builds it (target/capi/lib/libquoit.so)", file, LibraryVariable, reason)
	}
	return fmt.Errorf("%s cannot be used, looked for on the system's path (LD_LIBRARY_PATH, ld.so.conf, /lib, /usr/lib): "+
		"%s; install libquoit there, or let %s name the file", file, reason, LibraryVariable)
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
