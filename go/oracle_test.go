package quoit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// recorder notes what a program sees, so that what it sees of package net and of ours can be compared line by line.
type recorder struct {
	t     *testing.T
	trace []string
}

// see notes what something has come to: errors by what code can tell them by, everything else as it is printed.
func (r *recorder) see(what string, result ...any) {
	text := what
	for _, one := range result {
		if err, isError := one.(error); isError {
			text += " " + kind(err)
		} else if one != nil {
			text += fmt.Sprint(" ", one)
		} else {
			text += " nil"
		}
	}
	r.trace = append(r.trace, text)
}

// waits runs a call that waits, makes it end, and tells how.
func (r *recorder) waits(what string, call func() (int, error), ending func()) {
	done := make(chan error, 1)
	go func() {
		_, err := call()
		done <- err
	}()
	ending()
	r.see(what, receive(r.t, done))
}

// numbers are the errors of the kernel that code looks for.
var numbers = map[string]syscall.Errno{
	"EBADF": syscall.EBADF, "ECONNREFUSED": syscall.ECONNREFUSED, "EDESTADDRREQ": syscall.EDESTADDRREQ,
	"EINVAL": syscall.EINVAL, "EISDIR": syscall.EISDIR, "EMFILE": syscall.EMFILE, "EMSGSIZE": syscall.EMSGSIZE,
	"ENOBUFS": syscall.ENOBUFS, "ENOENT": syscall.ENOENT, "EADDRINUSE": syscall.EADDRINUSE, "EISCONN": syscall.EISCONN,
	"EAFNOSUPPORT": syscall.EAFNOSUPPORT, "EADDRNOTAVAIL": syscall.EADDRNOTAVAIL, "ENETUNREACH": syscall.ENETUNREACH,
	"ENOTCONN": syscall.ENOTCONN, "EACCES": syscall.EACCES, "ENODATA": syscall.ENODATA,
}

// kind is what code can tell an error by.
func kind(err error) string {
	text := fmt.Sprintf("%T", err)
	var op *net.OpError
	if errors.As(err, &op) {
		text += fmt.Sprintf("{%s %s source %t address %t}", op.Op, op.Net, op.Source != nil, op.Addr != nil)
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		text += " of " + call.Syscall
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		text += fmt.Sprintf("{%s %t}", path.Op, path.Path != "")
	}
	for _, one := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrClosed, os.ErrDeadlineExceeded, errors.ErrUnsupported,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, one) {
			text += " " + one.Error()
		}
	}
	var names []string
	for name, number := range numbers {
		if errors.Is(err, number) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		text += " " + name
	}
	// Which of the two it is depends on whether somebody has heard of the reset before.
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		text += " broken"
	}
	var timeout net.Error
	if errors.As(err, &timeout) {
		text += fmt.Sprint(" timeout ", timeout.Timeout())
	}
	return text
}

// difference is what is not as package net has it: docs/go.md has it, too.
type difference struct {
	why  string
	here map[string]string // what a line of package net's is here; nothing, if it is not there
}

// on is the difference on another network than tcp.
func (d *difference) on(network string) *difference {
	if d == nil {
		return nil
	}
	there := &difference{d.why, make(map[string]string)}
	for line, here := range d.here {
		there.here[strings.ReplaceAll(line, " tcp ", " "+network+" ")] = strings.ReplaceAll(here, " tcp ", " "+network+" ")
	}
	return there
}

// compare checks that ours is as package net's, but for what is known to be different; and that it is.
func compare(t *testing.T, stock, ours []string, known *difference) {
	t.Helper()
	expected := slices.Clone(stock)
	if known != nil {
		for index, line := range expected {
			if here, differs := known.here[line]; differs {
				expected[index] = here
			}
		}
		expected = slices.DeleteFunc(expected, func(line string) bool { return line == "" })
		if slices.Equal(expected, stock) {
			t.Errorf("%s: package net's is %q now", known.why, stock)
		}
	}
	if !slices.Equal(expected, ours) {
		t.Errorf("package net: %q\nexpected:    %q\nours:        %q", stock, expected, ours)
	}
}
