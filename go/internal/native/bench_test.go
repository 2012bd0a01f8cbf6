//go:build linux && (cgo || quoit_nocgo) && !quoit_std && (amd64 || arm64)

package native

import (
	"runtime"
	"testing"
)

// benchmarkLoop is a loop for one benchmark, on its thread.
func benchmarkLoop(b *testing.B, engine uint32) *Loop {
	b.Helper()
	if err := Load(); err != nil {
		b.Skip(err)
	}
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	config := DefaultConfig()
	config.Engine = engine
	loop, err := NewLoop(&config, 0)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() {
		if err := loop.Destroy(); err != nil {
			b.Error(err)
		}
	})
	return loop
}

// BenchmarkCrossing is a call that reads one field: what getting to the library and back costs.
func BenchmarkCrossing(b *testing.B) {
	loop := benchmarkLoop(b, EngineEpoll)
	for b.Loop() {
		if loop.Engine() != EngineEpoll {
			b.Fatal("it is another engine's")
		}
	}
}

// BenchmarkEmptyTurn is a turn that takes nothing, waits for nothing and brings nothing.
func BenchmarkEmptyTurn(b *testing.B) {
	for name, engine := range map[string]uint32{"uring": EngineURing, "epoll": EngineEpoll} {
		b.Run(name, func(b *testing.B) {
			loop := benchmarkLoop(b, engine)
			events := make([]Event, 16)
			for b.Loop() {
				if filled, err := loop.Turn(nil, events, 0); filled != 0 || err != nil {
					b.Fatal(filled, err)
				}
			}
		})
	}
}
