// Package linux_amd64 carries libquoit for Linux on amd64 inside the program that imports it, so that nothing has to be installed:
//
//	import _ "github.com/quoit-io/quoit/go/lib/linux_amd64"
//
// It has the library for glibc and the one for musl, and the one that the program runs on is loaded, from memory. The
// environment's QUOIT_LIBRARY goes before. Elsewhere than on Linux on amd64 the import does nothing. A
// program without cgo needs that of go/nocgo as well.
//
// The libraries are in released versions of this module. In the repository there are none, until make dist builds them.
package linux_amd64
