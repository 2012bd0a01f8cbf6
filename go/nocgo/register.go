//go:build linux && !cgo && !quoit_std && (amd64 || arm64)

package nocgo

import (
	"github.com/ebitengine/purego"

	"github.com/quoit-io/quoit/go/internal/nocgo"
)

func init() {
	nocgo.Registered = nocgo.Caller{Open: purego.Dlopen, Symbol: purego.Dlsym, Call: purego.SyscallN}
}
