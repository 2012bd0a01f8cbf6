//go:build unix

package quoit

import (
	"errors"
	"syscall"
)

// errMessageSize is that of a datagram that is too large to be sent.
var errMessageSize error = syscall.EMSGSIZE

// refusedByPeer is whether an earlier datagram has found nobody.
func refusedByPeer(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
