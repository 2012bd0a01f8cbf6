package quoit_test

import "syscall"

func getOption(fd uintptr, level, name int) (int, error) {
	return syscall.GetsockoptInt(int(fd), level, name)
}
