//go:build !linux

package quoit_test

import "errors"

func getOption(uintptr, int, int) (int, error) { return 0, errors.ErrUnsupported }
