// Package native is the C ABI of libquoit in Go: loading the library, checking it, and its calls with Go's types.
//
// The calls keep the names and the rules of quoit.h, which lies here as a checked copy. There are two implementations: one by cgo,
// and one for programs that are built without (calls_nocgo.go), by what internal/nocgo has. Nothing above this package uses cgo or
// knows how the library came into the program.
package native

// Available says whether this build can have the library at all: Linux on amd64 or arm64, and no tag quoit_std.
// Where it is false, WhyNot says why.
const Available = available

// WhyNot says why this build cannot have the library; empty where it can.
const WhyNot = whyNot
