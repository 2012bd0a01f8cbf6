//go:build unix

package siege

import "syscall"

// receivesInto sets the receive buffer of a socket before it connects, and so the window that its peer is offered; 0
// leaves it.
func receivesInto(size int) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		failure := raw.Control(func(descriptor uintptr) {
			if size > 0 {
				err = syscall.SetsockoptInt(int(descriptor), syscall.SOL_SOCKET, syscall.SO_RCVBUF, size)
			}
		})
		if failure != nil {
			return failure
		}
		return err
	}
}
