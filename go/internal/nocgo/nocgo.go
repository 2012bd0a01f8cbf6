// Package nocgo has what a program without cgo calls C by: what the module go/nocgo registers, if it is in the program. So only
// those that want it have its dependency, and a program that is linked dynamically.
package nocgo

// Caller calls C. Its functions are those of github.com/ebitengine/purego.
type Caller struct {
	Open   func(path string, mode int) (handle uintptr, err error)             // dlopen(3)
	Symbol func(handle uintptr, name string) (address uintptr, err error)      // dlsym(3)
	Call   func(function uintptr, arguments ...uintptr) (result, _, _ uintptr) // of integers and pointers only
}

// Registered is the program's; all nil without one. It is set while packages are initialised.
var Registered Caller
