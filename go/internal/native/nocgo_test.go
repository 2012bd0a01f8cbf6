//go:build linux && !cgo && !quoit_std && (amd64 || arm64)

package native

import (
	"errors"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/nocgo"
)

func init() {
	maps.Copy(withoutCgo, map[string]reflect.Type{
		"quoit_bind_options":   reflect.TypeFor[bindOptions](),
		"quoit_listen_options": reflect.TypeFor[listenOptions](),
		"quoit_capability":     reflect.TypeFor[capability](),
		"quoit_counter_info":   reflect.TypeFor[counterInfo](),
	})
	maps.Copy(constantsWithoutCgo, map[string]int{
		"ABI_MAJOR": abiVersion >> 16, "ABI_MINOR": abiVersion & 0xffff,
		"FIGURE_GAUGE": figureGauge, "ACCEPT_SPREAD": acceptSpread,
	})
}

func TestTheCountersHaveTheLayout(t *testing.T) {
	for line, fits := range map[string]bool{
		"struct quoit_counters 560 8\n":    unsafe.Sizeof(counters{}) == 560,
		"field quoit_counters size 0 4\n":  unsafe.Offsetof(counters{}.size) == 0,
		"field quoit_counters turns 8 8\n": unsafe.Offsetof(counters{}.turns) == 8,
	} {
		if !fits || !strings.Contains(layoutText, line) {
			t.Errorf("Go's is another than %q", line)
		}
	}
}

// What failed is told by dlerror(3), to the thread that called dlopen(3) alone: both are calls of their own here.
func TestAFailureToOpenIsOfOneThread(t *testing.T) {
	defer func(registered nocgo.Caller) { nocgo.Registered = registered }(nocgo.Registered)
	refused := errors.New("refused")
	nocgo.Registered.Open = func(string, int) (uintptr, error) {
		thread := syscall.Gettid()
		var others sync.WaitGroup
		for range 8 {
			others.Go(runtime.Gosched)
		}
		others.Wait()
		if now := syscall.Gettid(); now != thread {
			t.Errorf("it was on thread %d, and is on %d", thread, now)
		}
		return 0, refused
	}
	for range 100 {
		if err := open("libquoit.so"); !errors.Is(err, refused) {
			t.Fatal(err)
		}
	}
}
