module github.com/quoit-io/quoit/go/lib/linux_arm64

go 1.25.0

require github.com/quoit-io/quoit/go v0.0.0

replace github.com/quoit-io/quoit/go => ../../
