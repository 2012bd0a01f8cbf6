//go:build linux && !cgo && !quoit_std && (amd64 || arm64)

package native

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"unsafe"
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
