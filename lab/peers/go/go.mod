module quoit-lab/peers

go 1.25.0

require (
	github.com/miekg/dns v1.1.73
	github.com/panjf2000/gnet/v2 v2.10.0
	github.com/quoit-io/quoit/go v0.0.0
	github.com/quoit-io/quoit/go/fasthttp v0.0.0
	github.com/quoit-io/quoit/go/nocgo v0.0.0
	github.com/valyala/fasthttp v1.73.0
	golang.org/x/sys v0.47.0
)

require (
	github.com/andybalholm/brotli v1.2.2 // indirect
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/klauspost/compress v1.19.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)

replace (
	github.com/quoit-io/quoit/go => ../../../go
	github.com/quoit-io/quoit/go/fasthttp => ../../../go/fasthttp
	github.com/quoit-io/quoit/go/nocgo => ../../../go/nocgo
)
