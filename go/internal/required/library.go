//go:build linux && (cgo || quoit_nocgo) && !quoit_std && (amd64 || arm64)

package required

const hasLibrary = true
