//go:build linux && (cgo || quoit_nocgo) && !quoit_static && !quoit_std && (amd64 || arm64)

package quoit_test

import (
	"bytes"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// withLibrary runs a test of this file again as a process whose QUOIT_LIBRARY is path.
func withLibrary(t *testing.T, test, path string) string {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	command.Env = append(os.Environ(), "QUOIT_LIBRARY="+path, "QUOIT_TEST_CHILD=1")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(output)
}

// TestChildWithoutLibrary is what the processes of TestAMissingLibraryIsNamed do.
func TestChildWithoutLibrary(t *testing.T) {
	if os.Getenv("QUOIT_TEST_CHILD") == "" {
		t.Skip("it is run by another test")
	}
	if _, err := quoit.NewLoops(quoit.WithEngine(quoit.EngineEpoll)); err == nil {
		t.Error("there are loops of libquoit without it")
	} else {
		t.Log("REQUIRED:", err)
	}
	var log bytes.Buffer
	server, err := quoit.Start("127.0.0.1:0", echoes(), quoit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	connection := dial(t, server.Addr())
	roundTrip(t, connection, "hello")
	connection.Close()
	if server.Loops().Engine() != quoit.EngineStd {
		t.Error(server.Loops().Engine())
	}
	t.Log("LOGGED:", log.String())
	shutDown(t, server)
}

func TestAMissingLibraryIsNamed(t *testing.T) {
	folder := t.TempDir()
	noLibrary := filepath.Join(folder, "nolibrary.so")
	if err := os.WriteFile(noLibrary, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, wanted := range map[string][]string{
		filepath.Join(folder, "nothing.so"): {"nothing.so", "QUOIT_LIBRARY", "make capi"},
		noLibrary:                           {"nolibrary.so", "QUOIT_LIBRARY", "make capi"},
		"libc.so.6":                         {"libc.so.6", "quoit_abi_check", "not libquoit"},
		"":                                  {"libquoit.so.0", "LD_LIBRARY_PATH", "QUOIT_LIBRARY", "install"},
	} {
		output := withLibrary(t, "TestChildWithoutLibrary", path)
		for _, part := range []string{"REQUIRED:", "LOGGED:"} {
			_, rest, _ := strings.Cut(output, part)
			line, _, _ := strings.Cut(rest, "\n")
			for _, want := range wanted {
				if !strings.Contains(line, want) {
					t.Errorf("QUOIT_LIBRARY=%q: %q is not in: %s%s", path, want, part, line)
				}
			}
		}
	}
}

// TestChildOnOneProcessor is what the process of TestOneProcessorIsEnough does.
func TestChildOnOneProcessor(t *testing.T) {
	if os.Getenv("QUOIT_TEST_CHILD") == "" {
		t.Skip("it is run by another test")
	}
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server := start(t, echoes(), engine)
		listener, err := quoit.Listen("tcp", "127.0.0.1:0", quoit.OnLoops(server.Loops()))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go io.Copy(connection, connection)
			}
		}()
		// Package net's own descriptors are polled as well, while the loops wait.
		for _, address := range []net.Addr{server.Addr(), listener.Addr()} {
			connection := dial(t, address)
			for range 200 {
				roundTrip(t, connection, "hello")
			}
		}
		listener.Close()
	})
}

func TestOneProcessorIsEnough(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	if output := withLibrary(t, "TestChildOnOneProcessor", os.Getenv("QUOIT_LIBRARY")); strings.Contains(output, "FAIL") {
		t.Error(output)
	}
}

// TestChildWithASpareProcessor is what the process of TestASpareProcessorIsAskedFor does.
func TestChildWithASpareProcessor(t *testing.T) {
	if os.Getenv("QUOIT_TEST_CHILD") == "" {
		t.Skip("it is run by another test")
	}
	for index, wanted := range []int{2, 3, 3} {
		options := []quoit.Option{quiet(), quoit.WithLoops(1), quoit.WithEngine(quoit.EngineEpoll)}
		if index < 2 {
			options = append(options, quoit.WithSpareProcessor())
		}
		server := start(t, echoes(), options...)
		roundTrip(t, dial(t, server.Addr()), "hello")
		if found := runtime.GOMAXPROCS(0); found != wanted {
			t.Errorf("with %d loops GOMAXPROCS is %d and not %d", index+1, found, wanted)
		}
	}
}

func TestASpareProcessorIsAskedFor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	withLibrary(t, "TestChildWithASpareProcessor", os.Getenv("QUOIT_LIBRARY"))
}

// libraryEngines are the engines of libquoit that run here; without any the test is skipped.
func libraryEngines(t *testing.T) []quoit.Engine {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(engines()), func(e quoit.Engine) bool { return e == quoit.EngineStd })
	if len(found) == 0 {
		t.Skip("libquoit is not here; `make go` builds it and names it by QUOIT_LIBRARY")
	}
	return found
}

// TestNoAllocationARequest counts what a warm server allocates, the client's part being none.
func TestNoAllocationARequest(t *testing.T) {
	for _, engine := range libraryEngines(t) {
		server := start(t, echoes(), quoit.WithEngine(engine), quoit.WithLoops(1))
		connection := dial(t, server.Addr())
		// However long all of them take, on whatever machine.
		if err := connection.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		request, answer := []byte("hello"), make([]byte, 5)
		exchange := func() {
			if _, err := connection.Write(request); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(connection, answer); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			exchange()
		}
		// Not testing.AllocsPerRun, which runs everything on one processor.
		const requests, rounds = 2000, 5
		fewest := uint64(math.MaxUint64)
		for range rounds {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range requests {
				exchange()
			}
			runtime.ReadMemStats(&after)
			fewest = min(fewest, after.Mallocs-before.Mallocs)
		}
		// The runtime and the test's own machinery make a few, and now and then more.
		if fewest > requests/100 {
			t.Errorf("%v: %d allocations in %d requests", engine, fewest, requests)
		}
	}
}

// TestATurnIsOneCall checks that what comes together is answered together.
func TestATurnIsOneCall(t *testing.T) {
	for _, engine := range libraryEngines(t) {
		var writes atomic.Int32
		server := start(t, &handler{data: func(c *quoit.Conn) {
			for c.Buffered() >= 4 {
				request, _ := c.Next(4)
				c.Write(request)
				writes.Add(1)
			}
		}}, quoit.WithEngine(engine), quoit.WithLoops(1))
		connection := dial(t, server.Addr())
		const rounds, depth = 100, 16
		for range rounds {
			roundTrip(t, connection, strings.Repeat("ping", depth))
		}
		counters := server.Loops().Counters()[0]
		if sends := counters.Get("sends"); writes.Load() != rounds*depth || sends > rounds {
			t.Errorf("%v: %d writes left in %d sends", engine, writes.Load(), sends)
		}
	}
}

func TestCountersAreTyped(t *testing.T) {
	server := start(t, echoes(), quoit.WithEngine(libraryEngines(t)[0]), quoit.WithLoops(1))
	connection := dial(t, server.Addr())
	for range 200 {
		roundTrip(t, connection, "hello")
	}
	counters := server.Loops().Counters()
	if len(counters) != 1 {
		t.Fatal(len(counters))
	}
	if accepted := counters[0].Get("accepted"); accepted != 1 {
		t.Errorf("accepted %d", accepted)
	}
	for _, name := range []string{"turns", "received_bytes", "sent_bytes", "sends"} {
		if counters[0].Get(name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if sends, turns := counters[0].Get("sends"), counters[0].Get("turns"); sends > turns {
		t.Errorf("%d sends in %d turns", sends, turns)
	}
}
