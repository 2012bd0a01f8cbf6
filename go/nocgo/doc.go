// Package nocgo lets a program that is built without cgo (CGO_ENABLED=0) call libquoit, and so have io_uring and epoll:
//
//	import _ "github.com/quoit-io/quoit/go/nocgo"
//
// The library is found as with cgo: QUOIT_LIBRARY, or inside the program, or on the system's path.
//
// Such a program is linked dynamically, though no C compiler is needed to build it: it starts only where glibc is, or with
// -ldflags '-I /lib/ld-musl-x86_64.so.1' where musl is, and not in an image from scratch. Without the import a program without cgo
// is static, and runs on package net. Elsewhere than on Linux on amd64 or arm64, in programs with cgo, and with the tag quoit_std
// the import does nothing.
package nocgo
