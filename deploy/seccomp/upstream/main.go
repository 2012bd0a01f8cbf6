// Command upstream prints the seccomp profile that a container runtime has by default, in the form that the runtime reads. Which
// version of it: go.mod says, and go.sum holds it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/contrib/seccomp"
	docker "github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Those that Docker, containerd and Kubernetes grant by default: containerd's profile depends on what a container may do.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

func profile(runtime string) (any, error) {
	switch runtime {
	case "docker":
		return docker.DefaultProfile(), nil
	case "containerd":
		return containerd.DefaultProfile(&specs.Spec{
			Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: capabilities}},
		}), nil
	}
	return nil, fmt.Errorf("%q is no runtime that is known here: docker or containerd", runtime)
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("say which runtime's: docker or containerd")
	}
	profile, err := profile(os.Args[1])
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "\t")
	return encoder.Encode(profile)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}
