package quoit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// takeDescriptors takes all that the process may have, until the function is called that it returns.
func takeDescriptors(t *testing.T) (giveBack func()) {
	t.Helper()
	var taken []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, fd)
	}
	return func() {
		for _, fd := range taken {
			syscall.Close(fd)
		}
	}
}

// Without descriptors nobody is lost: what waits is accepted when there are some again.
func TestWithoutDescriptorsNobodyIsLost(t *testing.T) {
	if os.Getenv("QUOIT_TEST_WITHOUT_DESCRIPTORS") == "" {
		// They are the process's, and no other test is to lack them.
		command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		command.Env = append(os.Environ(), "QUOIT_TEST_WITHOUT_DESCRIPTORS=1")
		if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS") {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	// From the start, as io_uring keeps the limit with the accept that is under way.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 256, Max: 256}); err != nil {
		t.Fatal(err)
	}
	compareDoors(t, nil, func(r *recorder, d *door) {
		l := d.local(r.t, "tcp")
		first := dial(r.t, l.Addr())
		r.accept(l)
		peer, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		restore := takeDescriptors(r.t)
		if err := syscall.Connect(peer, &syscall.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			r.t.Fatal(err)
		}
		failures := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				conn.Close()
			}
			failures <- err
		}()
		err = receive(r.t, failures)
		var temporary interface{ Temporary() bool }
		r.see("without descriptors", err, errors.As(err, &temporary) && temporary.Temporary())
		restore()
		// Of one that tries by itself, more may have failed meanwhile.
		conn, err := l.Accept()
		for errors.Is(err, syscall.EMFILE) {
			conn, err = l.Accept()
		}
		if err != nil {
			r.t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "hello")
		memory := make([]byte, 5)
		n, err := syscall.Read(peer, memory)
		r.see("served", n, string(memory[:n]), err)
		syscall.Close(peer)
		first.Close()
	})
}
