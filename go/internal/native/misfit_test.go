//go:build linux && (cgo || quoit_nocgo) && !quoit_std && (amd64 || arm64)

package native

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// library is the beginning of an ELF file for a machine, and names that it needs.
func library(class byte, machine string, needed string) []byte {
	bytes := make([]byte, elfHeader, 2*elfHeader)
	copy(bytes, "\x7fELF")
	bytes[elfClass], bytes[elfData] = class, elfLittle
	for number, name := range elfMachines {
		if name == machine {
			bytes[elfMachine], bytes[elfMachine+1] = byte(number), byte(number>>8)
		}
	}
	return append(bytes, "\x00"+needed+"\x00"...)
}

func TestAMisfitIsExplained(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for name, of := range map[string]struct {
		library []byte
		reason  string
		glibc   bool
		want    string
	}{
		"no file":             {nil, "no such file", true, ""},
		"no library":          {[]byte(strings.Repeat("text ", 20)), "invalid ELF header", true, ""},
		"half a header":       {library(elf64, other, "")[:30], "file too short", true, ""},
		"32 bits":             {library(1, "386", "libc.so.6"), "wrong ELF class", true, "not for a 64-bit"},
		"another processor":   {library(elf64, other, "libc.so.6"), "No such file", true, "it is for " + other + ", and this program is for " + runtime.GOARCH},
		"one without a name":  {library(elf64, "none", "libc.so.6"), "No such file", true, "it is for ELF's machine 0"},
		"musl on glibc":       {library(elf64, runtime.GOARCH, "libc.so"), "invalid ELF header", true, "it is for musl, and this program runs on glibc"},
		"glibc on musl":       {library(elf64, runtime.GOARCH, "libc.so.6"), "symbol not found", false, "it is for glibc, and this program runs on musl"},
		"glibc on glibc":      {library(elf64, runtime.GOARCH, "libc.so.6"), "undefined symbol", true, ""},
		"no C library at all": {library(elf64, runtime.GOARCH, ""), "undefined symbol", true, ""},
		"a newer glibc":       {library(elf64, runtime.GOARCH, "libc.so.6"), "version `GLIBC_2.99' not found", true, "glibc 2.17"},
		"a static program":    {library(elf64, runtime.GOARCH, "libc.so"), "Dynamic loading not supported", false, "link it dynamically"},
		"noexec":              {library(elf64, runtime.GOARCH, "libc.so.6"), "failed to map segment from shared object", true, "noexec"},
	} {
		t.Run(name, func(t *testing.T) {
			found := misfit(of.library, of.reason, of.glibc)
			if (of.want == "") != (found == "") || !strings.Contains(found, of.want) {
				t.Errorf("%q, and not %q", found, of.want)
			}
			if found != "" && !strings.HasPrefix(found, "; ") {
				t.Errorf("%q follows a sentence", found)
			}
		})
	}
}

func TestTheProgramItselfIsOfThisProcessor(t *testing.T) {
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if found := misfit(text, "", strings.Contains(string(text), "\x00libc.so.6\x00")); found != "" {
		t.Error(found)
	}
}
