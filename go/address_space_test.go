//go:build linux && (cgo || quoit_nocgo) && !quoit_static && !quoit_std && (amd64 || arm64)

package quoit_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// leave leaves this process so many bytes of address space more than it has.
func leave(t *testing.T, bytes uint64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmSize:")
	var has uint64
	if _, err := fmt.Sscanf(rest, "%d kB", &has); err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: has<<10 + bytes, Max: ^uint64(0)}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Fatal(err)
	}
}

// withLittleStacks has the threads of this process have little stacks, as Go makes them when it wants to, and ends the program
// where there is no memory for them. Their size is read when a program starts (pthread_create(3)), so that it starts again.
func withLittleStacks(t *testing.T) {
	t.Helper()
	const little = 256 << 10
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_STACK, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur == little {
		return
	}
	limit.Cur = little
	if err := syscall.Setrlimit(syscall.RLIMIT_STACK, &limit); err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// TestChildWithLittleAddressSpace is what the processes of TestLittleAddressSpaceIsAnError do.
func TestChildWithLittleAddressSpace(t *testing.T) {
	engine, err := quoit.ParseEngine(os.Getenv("QUOIT_TEST_LITTLE"))
	if err != nil {
		t.Skip("it is run by another test")
	}
	withLittleStacks(t)
	makes := func(bytes uint64) bool {
		leave(t, bytes)
		loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(1), quiet())
		leave(t, 1<<30)
		if err != nil {
			if !errors.Is(err, syscall.ENOMEM) && !strings.Contains(err.Error(), "memory") {
				t.Fatalf("%d bytes: %v", bytes, err)
			}
			return false
		}
		if err := loops.Close(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	const step, most = 4 << 20, 512 << 20
	bytes := uint64(4 * step)
	if makes(bytes) {
		t.Error("16 MiB are enough")
	}
	for !makes(bytes) {
		if bytes += step; bytes > most {
			t.Fatal("512 MiB are not enough")
		}
	}
	// What is made last is little, and missed by long steps.
	for less := range uint64(64) {
		makes(bytes - less*step/64)
	}
}

func TestLittleAddressSpaceIsAnError(t *testing.T) {
	for _, engine := range libraryEngines(t) {
		command := exec.Command(os.Args[0], "-test.run", "^TestChildWithLittleAddressSpace$", "-test.v")
		command.Env = append(os.Environ(), "QUOIT_TEST_LITTLE="+engine.String(), "MALLOC_ARENA_MAX=1")
		output, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "--- PASS") {
			t.Errorf("%v: %v\n%s", engine, err, output)
		}
	}
}
