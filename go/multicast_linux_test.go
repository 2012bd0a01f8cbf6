package quoit_test

import "syscall"

// multicastBy sets the interface that a socket sends to groups by, by its address.
func multicastBy(fd uintptr, address [4]byte) error {
	return syscall.SetsockoptInet4Addr(int(fd), syscall.IPPROTO_IP, syscall.IP_MULTICAST_IF, address)
}
