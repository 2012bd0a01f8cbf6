package quoit

import (
	"errors"
	"net"
	"os"
	"syscall"
)

var (
	// ErrFull is returned by Conn.Write when the bytes would take the connection's outbound queue past its
	// high-water mark. Nothing was taken. OnWritable follows when the queue is at its low-water mark.
	ErrFull = errors.New("quoit: the outbound queue is full; wait for OnWritable")

	// ErrTooLarge is returned by Conn.Write for more bytes than the high-water mark, which could never be taken at
	// once. Write them in parts, or raise the mark (WithWaterMarks).
	ErrTooLarge = errors.New("quoit: one write is larger than the high-water mark; write it in parts")

	// ErrNoData is returned by Conn.Read and Conn.Peek when fewer bytes are there than were asked for. More come
	// with the next OnData.
	ErrNoData = errors.New("quoit: not that many bytes have arrived; wait for OnData")

	// ErrOnLoop is returned by a blocking call of a net.Conn that would have to wait, on the thread of the
	// connection's own loop: only that thread could end the wait. Make such calls on another goroutine. On EngineStd,
	// whose loops have no thread, they wait in vain instead, and the loop with them.
	ErrOnLoop = errors.New("quoit: a blocking call on the thread of the connection's own loop would never return; " +
		"make it on another goroutine")

	// ErrShutdown is returned by calls on loops, servers, listeners and dialers that have been shut down.
	ErrShutdown = errors.New("quoit: shut down")

	// ErrPanicked is what OnClose is told of a connection that was closed because its handler panicked, or called runtime.Goexit.
	ErrPanicked = errors.New("quoit: the handler panicked")

	// ErrLimit is what OnClose is told of a connection that was closed because it reached a limit.
	ErrLimit = errors.New("quoit: closed at a limit")
)

// Errors of the standard library that mean the same here.
var (
	// errClosed is returned by calls on a connection that this end has closed.
	errClosed = net.ErrClosed
	// errTimeout is that of a deadline that has passed, or of an attempt or a close that took too long.
	errTimeout error = os.ErrDeadlineExceeded
	// errReset is that of a connection that the peer has reset.
	errReset error = syscall.ECONNRESET
	// errRefused is that of an attempt where nobody listens.
	errRefused error = syscall.ECONNREFUSED
)

// asCall makes of an error of the kernel what package net makes of it: code that looks for connections that broke finds them by
// an os.SyscallError.
func asCall(call string, err error) error {
	if errno, is := err.(syscall.Errno); is {
		return os.NewSyscallError(call, errno)
	}
	return err
}
