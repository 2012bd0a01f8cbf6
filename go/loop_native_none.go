//go:build !(linux && !quoit_std && (amd64 || arm64))

package quoit

import (
	"errors"

	"github.com/quoit-io/quoit/go/internal/native"
)

// useLibrary says why this build has no libquoit.
func (l *Loops) useLibrary() error {
	return &libraryError{errors.New(native.WhyNot)}
}

func diagnose() Diagnosis { return Diagnosis{Engine: EngineStd, Reason: native.WhyNot} }
