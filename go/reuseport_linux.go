//go:build linux && !mips && !mipsle && !mips64 && !mips64le

package quoit

import (
	"os"
	"syscall"
)

// reusePort is SO_REUSEPORT, which package syscall does not have for all processors.
const reusePort = 15

// setReusePort is a net.ListenConfig.Control.
func setReusePort(_, _ string, socket syscall.RawConn) error {
	var failure error
	err := socket.Control(func(fd uintptr) {
		failure = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1))
	})
	if err != nil {
		return err
	}
	return failure
}
