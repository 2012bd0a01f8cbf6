//go:build linux && arm64 && !quoit_static && !quoit_std

package linux_arm64

import (
	"embed"

	"github.com/quoit-io/quoit/go/internal/embedded"
)

//go:embed all:libraries
var libraries embed.FS

func init() {
	embedded.Register("github.com/quoit-io/quoit/go/lib/linux_arm64", libraries, "libraries")
}
