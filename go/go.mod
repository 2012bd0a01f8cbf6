module github.com/quoit-io/quoit/go

go 1.25.0
