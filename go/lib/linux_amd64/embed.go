//go:build linux && amd64 && !quoit_static && !quoit_std

package linux_amd64

import (
	"embed"

	"github.com/quoit-io/quoit/go/internal/embedded"
)

//go:embed all:libraries
var libraries embed.FS

func init() {
	embedded.Register("github.com/quoit-io/quoit/go/lib/linux_amd64", libraries, "libraries")
}
