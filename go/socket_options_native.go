//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"net"
	"os"
	"syscall"
	"time"
)

// descriptor is a connection's socket of libquoit's, on its loop.
type descriptor int

func (d descriptor) Control(f func(fd uintptr)) error {
	f(uintptr(d))
	return nil
}

func (d descriptor) File(name string) (*os.File, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(d), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(fd, name), nil
}

func (d descriptor) SetReadBuffer(bytes int) error {
	return d.set(syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes)
}

func (d descriptor) SetWriteBuffer(bytes int) error {
	return d.set(syscall.SOL_SOCKET, syscall.SO_SNDBUF, bytes)
}

func (d descriptor) SetNoDelay(noDelay bool) error {
	return d.set(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, asInt(noDelay))
}

func (d descriptor) SetKeepAlivePeriod(period time.Duration) error {
	if period == 0 {
		period = 15 * time.Second
	}
	if period < 0 {
		return nil
	}
	return d.set(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, int((period+time.Second-1)/time.Second))
}

func (d descriptor) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	if err := d.set(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, asInt(config.Enable)); err != nil {
		return err
	}
	for _, part := range []struct {
		option int
		value  time.Duration
		usual  time.Duration
	}{
		{syscall.TCP_KEEPIDLE, config.Idle, 15 * time.Second},
		{syscall.TCP_KEEPINTVL, config.Interval, 15 * time.Second},
		{syscall.TCP_KEEPCNT, time.Duration(config.Count) * time.Second, 9 * time.Second},
	} {
		value := part.value
		if value < 0 {
			continue
		}
		if value == 0 {
			value = part.usual
		}
		if err := d.set(syscall.IPPROTO_TCP, part.option, int((value+time.Second-1)/time.Second)); err != nil {
			return err
		}
	}
	return nil
}

func (d descriptor) set(level, option, value int) error {
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(d), level, option, value))
}

func asInt(value bool) int {
	if value {
		return 1
	}
	return 0
}

// onSocket implements home.
func (l *nativeLoop) onSocket(c *Conn, f func(socket streamSocket) error) error {
	err := error(errClosed)
	called := l.call(func() {
		c.mu.Lock()
		id := c.id
		c.mu.Unlock()
		if id == 0 {
			return
		}
		if fd := l.library.ConnectionFD(id); fd >= 0 {
			err = f(descriptor(fd))
		}
	})
	if !called {
		return errClosed
	}
	return err
}
