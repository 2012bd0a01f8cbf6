package doors

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// peer is a server of the lab's (lab/peers) that serves on its own transport, and on ours.
type peer struct {
	name  string
	flag  string // chooses the transport
	rest  []string
	stock string
	ours  []string
}

var peers = []peer{
	{"netty", "--engine", nil, "epoll", []string{"quoit-uring", "quoit-epoll"}},
	{
		"kestrel", "--transport", []string{"--app", "minimal"}, "sockets",
		[]string{"quoit-uring", "quoit-epoll", "quoit-uring-inline", "quoit-epoll-inline"},
	},
	{"axum", "--engine", nil, "tokio", []string{"uring", "epoll", "uring-loops", "epoll-loops"}},
}

// start runs the server on one transport until the end of the test, and returns where it listens.
func (p peer) start(t *testing.T, service, transport string) *net.TCPAddr {
	t.Helper()
	folder := os.Getenv("QUOIT_PEERS")
	if folder == "" {
		t.Skip("QUOIT_PEERS names no folder with the lab's servers; make doors does")
	}
	program := filepath.Join(folder, p.name)
	if _, err := os.Stat(program); err != nil {
		t.Fatal("make lab-peers builds it: ", err)
	}
	command := exec.Command(program, append([]string{service, "--listen", "127.0.0.1:0", p.flag, transport}, p.rest...)...)
	// The lab measures without them. The leak detector that looks at every buffer takes ten times as long for large messages.
	level := "paranoid"
	if service == "websocket" {
		level = "advanced"
	}
	command.Env = append(os.Environ(), "QUOIT_LAB_JAVA_OPTIONS=-ea -Dio.netty.leakDetection.level="+level+
		" -Dio.netty.buffer.checkBounds=true -Dio.netty.buffer.checkAccessible=true")
	said := &leaks{t: t}
	command.Stderr = said
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
		said.check()
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

// leaks passes on what a server says on standard error, in which Netty's leak detector may have something to say.
type leaks struct {
	t    *testing.T
	lock sync.Mutex
	text bytes.Buffer
}

func (l *leaks) Write(said []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.text.Write(said)
	return os.Stderr.Write(said)
}

func (l *leaks) check() {
	l.lock.Lock()
	defer l.lock.Unlock()
	if bytes.Contains(l.text.Bytes(), []byte("LEAK:")) {
		l.t.Error("the server lost a buffer")
	}
}
