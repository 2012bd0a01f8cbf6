//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package native

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"
)

const textSize = C.SHIM_TEXT // room for the text of a failed call, with its NUL

// callable says why nothing can be called.
func callable() error { return nil }

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

// onGlibc returns whether this program runs on glibc; otherwise it is musl.
func onGlibc() bool { return C.shim_on_glibc() != 0 }

func abiCheck() error {
	var text text
	if code := C.shim_abi_check(text.pointer()); code < 0 {
		return text.failure("quoit_abi_check", int(code))
	}
	return nil
}

func layout() string { return C.GoString(C.shim_layout()) }

// Version is the library's own version.
func Version() string { return C.GoString(C.shim_version()) }

func (t *text) pointer() *C.char { return (*C.char)(unsafe.Pointer(t)) }
