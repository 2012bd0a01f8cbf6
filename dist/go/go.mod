module github.com/quoit-io/quoit/dist/go

go 1.26.0

require golang.org/x/mod v0.43.0

require github.com/BurntSushi/toml v1.6.0
