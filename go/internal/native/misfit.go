//go:build linux && !quoit_std && (amd64 || arm64)

package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Places in the header of an ELF file, and values there.
const (
	elfClass, elfData, elfMachine, elfHeader = 4, 5, 18, 64
	elf64, elfLittle                         = 2, 1
)

var elfMachines = map[uint16]string{3: "386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64", 258: "loong64"}

// largest is more than any libquoit has.
const largest = 16 << 20

// misfitOf is misfit of a file.
func misfitOf(path, reason string, onGlibc bool) string {
	file, err := os.Open(path)
	if err != nil {
		return misfit(nil, reason, onGlibc)
	}
	defer file.Close()
	library, _ := io.ReadAll(io.LimitReader(file, largest))
	return misfit(library, reason, onGlibc)
}

// misfit says what is wrong with a library that could not be loaded, and which would be right: the loader's own reason names a file
// that is not there where the library is for another processor. It begins with a semicolon, and is empty where nothing can be told.
func misfit(library []byte, reason string, onGlibc bool) string {
	here, other := "musl", "glibc"
	if onGlibc {
		here, other = other, here
	}
	if len(library) >= elfHeader && bytes.HasPrefix(library, []byte("\x7fELF")) {
		if library[elfClass] != elf64 || library[elfData] != elfLittle {
			return fmt.Sprintf("; it is not for a 64-bit processor such as this program's (%s)", runtime.GOARCH)
		}
		number := binary.LittleEndian.Uint16(library[elfMachine:])
		if machine := elfMachines[number]; machine != runtime.GOARCH {
			if machine == "" {
				machine = fmt.Sprintf("ELF's machine %d", number)
			}
			return fmt.Sprintf("; it is for %s, and this program is for %s: take the libquoit for that", machine, runtime.GOARCH)
		}
		needsGlibc, needsMusl := bytes.Contains(library, []byte("\x00libc.so.6\x00")), bytes.Contains(library, []byte("\x00libc.so\x00"))
		if needsGlibc != needsMusl && needsGlibc != onGlibc {
			return fmt.Sprintf("; it is for %s, and this program runs on %s: take the libquoit for that", other, here)
		}
	}
	switch {
	case strings.Contains(reason, "`GLIBC_"):
		return "; this system's glibc is too old for it: packages of Quoit need glibc 2.17, and one that is built on a system needs that system's"
	case strings.Contains(reason, "Dynamic loading not supported"):
		return "; this program is a static one of musl's, which loads no library: link it dynamically"
	case strings.Contains(reason, "failed to map segment"), strings.Contains(reason, "Operation not permitted"):
		return "; its folder is mounted noexec, or may not be run from for another reason"
	}
	return ""
}
