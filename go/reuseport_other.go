//go:build !linux || mips || mipsle || mips64 || mips64le

package quoit

import "syscall"

// setReusePort is a net.ListenConfig.Control where WithReusePort changes nothing.
var setReusePort func(network, address string, socket syscall.RawConn) error
