module github.com/quoit-io/quoit/go/doors

go 1.26.0

require github.com/quoit-io/quoit/go v0.0.0

replace github.com/quoit-io/quoit/go => ../
