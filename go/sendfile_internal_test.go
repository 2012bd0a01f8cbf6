//go:build linux && (cgo || quoit_nocgo) && !quoit_std && (amd64 || arm64)

package quoit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/internal/native"
)

// openTimes is how many descriptors of this process are of the file.
func openTimes(t *testing.T, path string) (count int) {
	t.Helper()
	const descriptors = "/proc/self/fd"
	all, err := os.ReadDir(descriptors)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if to, err := os.Readlink(filepath.Join(descriptors, one.Name())); err == nil && to == path {
			count++
		}
	}
	return count
}

// The last turn of a loop may tell that a part of a file has left. The next one is given to nobody then, and neither is the
// descriptor that it would have been sent from.
func TestALoopThatEndsKeepsNoDescriptorOfAFile(t *testing.T) {
	onEachLoop(t, func(t *testing.T, loops *Loops) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		n, _ := accepted(t, loops)
		loop := loops.loops[0].(*nativeLoop)
		first := true
		loop.every(func() time.Duration {
			if first {
				first = false
				return time.Nanosecond
			}
			// A timer's function runs where a turn is reported.
			job := &fileJob{fd: int(file.Fd()), left: 1 << 20, done: make(chan struct{}, 1)}
			n.conn.mu.Lock()
			n.conn.files.job, n.conn.files.token = job, loop.token
			n.conn.mu.Unlock()
			loop.dispatch(&native.Event{Kind: native.EventSent, Connection: n.conn.id, Token: loop.token})
			if count := openTimes(t, path); count != 2 {
				t.Errorf("the next part is not to be sent: the file is open %d times", count)
			}
			loop.stopping = true
			return 0
		})
		<-loop.gone
		if count := openTimes(t, path); count != 1 {
			t.Errorf("the file is open %d times", count)
		}
	})
}
