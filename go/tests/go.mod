module github.com/quoit-io/quoit/go/tests

go 1.26.0

require github.com/quoit-io/quoit/go v0.0.0

require (
	github.com/pires/go-proxyproto v0.15.0
	github.com/quoit-io/quoit/go/lib/linux_amd64 v0.0.0
	github.com/quoit-io/quoit/go/lib/linux_arm64 v0.0.0
	github.com/quoit-io/quoit/go/nocgo v0.0.0
	golang.org/x/net v0.62.0
)

require github.com/ebitengine/purego v0.11.3 // indirect

replace (
	github.com/quoit-io/quoit/go => ../
	github.com/quoit-io/quoit/go/lib/linux_amd64 => ../lib/linux_amd64
	github.com/quoit-io/quoit/go/lib/linux_arm64 => ../lib/linux_arm64
	github.com/quoit-io/quoit/go/nocgo => ../nocgo
)
