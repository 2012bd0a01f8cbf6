package native

import (
	"fmt"
	"syscall"
)

// Error is a failed call.
type Error struct {
	Call  string        // such as quoit_socket_bind
	Errno syscall.Errno // what it returned
	Text  string        // the library's text: what failed, on what, what to do
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: %s", e.Call, e.Errno.Error())
	}
	return e.Text
}

// Unwrap returns the Errno.
func (e *Error) Unwrap() error { return e.Errno }
