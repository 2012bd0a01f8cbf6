module github.com/quoit-io/quoit/go/examples

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/quoit-io/quoit/go v0.0.0
	github.com/quoit-io/quoit/go/fasthttp v0.0.0
	github.com/valyala/fasthttp v1.73.0
	golang.org/x/net v0.60.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
)

require (
	github.com/andybalholm/brotli v1.2.2 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/prometheus/client_golang v1.25.0
	github.com/quoit-io/quoit/go/prometheus v0.0.0
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/quoit-io/quoit/go => ../
	github.com/quoit-io/quoit/go/fasthttp => ../fasthttp
)

replace github.com/quoit-io/quoit/go/prometheus => ../prometheus
