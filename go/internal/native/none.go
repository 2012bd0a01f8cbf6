//go:build !(linux && cgo && !quoit_std && (amd64 || arm64))

package native

const (
	available = false
	whyNot    = "this program was built without libquoit: that needs Linux on amd64 or arm64, cgo (CGO_ENABLED=1) " +
		"and no tag quoit_std"
)
