//go:build linux && cgo && !quoit_static && !quoit_std && (amd64 || arm64)

package native

// #cgo LDFLAGS: -ldl
import "C"

// Static says whether libquoit.a was linked in, so that nothing is looked for at run time.
const Static = false
