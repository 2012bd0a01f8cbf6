module github.com/quoit-io/quoit/go/nocgo

go 1.25.0

require (
	github.com/ebitengine/purego v0.11.3
	github.com/quoit-io/quoit/go v0.0.0
)

replace github.com/quoit-io/quoit/go => ../
