//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const unixPrefix = "unix:"

// libraryAddress makes of an address, numbers or unix: with a name as it is, the text that the library takes for it.
func libraryAddress(address string) string {
	if name, isUnix := strings.CutPrefix(address, unixPrefix); isUnix {
		return unixPrefix + escapeName(name)
	}
	return withNumber(address)
}

// escapeName makes of the name of a Unix socket, which may have any bytes, the library's text, in which a backslash begins an escape.
func escapeName(name string) string {
	if len(name) > 1 && name[0] == 0 {
		name = "@" + name[1:] // an abstract name as the kernel has it, which package net takes as well
	}
	var text strings.Builder
	for rest := name; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == '\\':
			text.WriteString(`\\`)
		case r == utf8.RuneError && size == 1, unicode.IsControl(r):
			for index := range size {
				fmt.Fprintf(&text, `\x%02x`, rest[index])
			}
		default:
			text.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return text.String()
}

// unescapeName is the name of a Unix socket of which the library has made this text.
func unescapeName(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var name []byte
	for rest := text; rest != ""; {
		size, one := 1, rest[0]
		switch {
		case strings.HasPrefix(rest, `\\`):
			size = 2
		case strings.HasPrefix(rest, `\x`) && len(rest) >= 4:
			if value, err := strconv.ParseUint(rest[2:4], 16, 8); err == nil {
				size, one = 4, byte(value)
			}
		}
		name = append(name, one)
		rest = rest[size:]
	}
	return string(name)
}
