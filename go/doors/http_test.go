package doors

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quoit-io/quoit/go/internal/oracle"
)

// start runs a server of the lab's (lab/peers) until the end of the test, and returns where it listens.
func start(t *testing.T, name string, arguments ...string) net.Addr {
	t.Helper()
	folder := os.Getenv("QUOIT_PEERS")
	if folder == "" {
		t.Skip("QUOIT_PEERS names no folder with the lab's servers; make doors does")
	}
	program := filepath.Join(folder, name)
	if _, err := os.Stat(program); err != nil {
		t.Skip("it was not built: ", err)
	}
	command := exec.Command(program, append([]string{"http", "--listen", "127.0.0.1:0"}, arguments...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // or it has ended by itself
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s says nothing: %v", command, err)
	}
	var where string
	if _, err := fmt.Sscanf(strings.TrimSpace(line), "listening on %s", &where); err != nil {
		t.Fatalf("%s says %q", command, line)
	}
	address, err := net.ResolveTCPAddr("tcp", where)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// What Netty's and Kestrel's own codecs make of requests that are cut anywhere, or hostile, depends on no transport. Kestrel's
// response to a bad request of a client that has ended its direction comes or does not, on sockets too: it races with the end.
func TestHTTPIsReadTheSameOnTheDoorsOfNettyAndKestrel(t *testing.T) {
	exchanges := append(oracle.EachCut(), oracle.Hostile(29, 1000)...)
	for _, door := range []struct {
		name  string
		flag  string
		rest  []string
		stock string
		ours  []string
	}{
		{"netty", "--engine", nil, "epoll", []string{"quoit-uring", "quoit-epoll"}},
		{
			"kestrel", "--transport", []string{"--app", "minimal", "--metrics", "127.0.0.1:0"}, "sockets",
			[]string{"quoit-uring", "quoit-epoll", "quoit-uring-inline", "quoit-epoll-inline"},
		},
	} {
		for _, ours := range door.ours {
			t.Run(door.name+" on "+ours, func(t *testing.T) {
				run := func(way string) net.Addr {
					return start(t, door.name, append([]string{door.flag, way}, door.rest...)...)
				}
				oracle.HTTPWithRaces(t, run(door.stock), run(ours), exchanges, 20)
			})
		}
	}
}
