//go:build !unix

package quoit

import "errors"

// errMessageSize is that of a datagram that is too large to be sent.
var errMessageSize = errors.New("quoit: a datagram of more than 65,527 bytes, or over IPv4 of more than 65,507, cannot be sent")

// refusedByPeer is whether an earlier datagram has found nobody.
func refusedByPeer(error) bool { return false }
