//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import "github.com/quoit-io/quoit/go/internal/native"

func diagnose() Diagnosis {
	if err := native.Load(); err != nil {
		return Diagnosis{Engine: EngineStd, Reason: err.Error()}
	}
	d := Diagnosis{Engine: EngineEpoll, Library: native.Version()}
	usable, reason, features, err := native.Probe(nil)
	if err != nil {
		d.Reason = err.Error()
		return d
	}
	if usable {
		d.Engine = EngineURing
	}
	d.Reason = reason
	for _, feature := range features {
		d.Features = append(d.Features, Feature{
			Name: feature.Name, About: feature.About, MinimumKernel: feature.MinimumKernel,
			Usable: feature.Usable, Reason: feature.Reason,
		})
	}
	return d
}
