//go:build !(linux && !quoit_std && (amd64 || arm64))

package native

const (
	available = false
	whyNot    = "this program was built without libquoit: that needs Linux on amd64 or arm64, and no tag quoit_std"
)
