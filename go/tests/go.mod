module github.com/quoit-io/quoit/go/tests

go 1.26.0

require github.com/quoit-io/quoit/go v0.0.0

require golang.org/x/net v0.62.0

replace github.com/quoit-io/quoit/go => ../
