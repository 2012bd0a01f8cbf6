package exampletest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// patience ends a test that hangs; nothing depends on it otherwise.
const patience = time.Minute

// asExample is set in the environment of processes that are the example.
const asExample = "QUOIT_EXAMPLE_TEST"

// Main is the TestMain of an example whose main that is: the test's own program is the example too, for Run.
func Main(m *testing.M, main func()) {
	if os.Getenv(asExample) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Process is an example that runs as a user starts it.
type Process struct {
	Address string
	command *exec.Cmd
	done    chan error
	log     strings.Builder
}

// Run runs the example as a process.
func Run(t *testing.T) *Process {
	t.Helper()
	return run(t, exec.Command(os.Args[0], "-listen", "127.0.0.1:0"))
}

// RunInherited runs it with a listening socket, as a service manager passes one.
func RunInherited(t *testing.T, socket *os.File, arguments ...string) *Process {
	t.Helper()
	return run(t, inheriting(socket, arguments...))
}

// EndsInherited runs it with a descriptor that it cannot use, and expects that it says so.
func EndsInherited(t *testing.T, file *os.File, want string) {
	t.Helper()
	command := inheriting(file)
	command.Env = append(os.Environ(), asExample+"=1")
	said, err := command.CombinedOutput()
	if err == nil || strings.Count(string(said), want) != 1 {
		t.Errorf("%v: %q", err, said)
	}
}

// inheriting is the example with the file as descriptor 3. A shell tells it so, as its process id is not known before.
func inheriting(file *os.File, arguments ...string) *exec.Cmd {
	script := `LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec "$0" "$@"`
	command := exec.Command("sh", append([]string{"-c", script, os.Args[0]}, arguments...)...)
	command.ExtraFiles = []*os.File{file}
	return command
}

// Engines are those that run here, as the flag of an example takes them.
func Engines(t *testing.T) []string {
	t.Helper()
	var usable []string
	for name, engine := range map[string]quoit.Engine{"uring": quoit.EngineURing, "epoll": quoit.EngineEpoll} {
		loops, err := quoit.NewLoops(quoit.WithEngine(engine), quoit.WithLoops(1))
		if err != nil {
			t.Logf("%s is left out: %v", name, err)
			continue
		}
		_ = loops.Close() // fails only if it was called before
		usable = append(usable, name)
	}
	return append(usable, "std")
}

func run(t *testing.T, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{command: command, done: make(chan error, 1)}
	p.command.Env = append(os.Environ(), asExample+"=1")
	p.command.Stderr = &p.log
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(output).ReadString('\n')
	go func() { p.done <- p.command.Wait() }()
	t.Cleanup(func() { _ = p.command.Process.Kill() })
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !found {
		t.Fatalf("%q", line)
	}
	p.Address = address
	return p
}

// Terminate sends SIGTERM.
func (p *Process) Terminate(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Ends waits until the process has ended, with 0 and in time.
func (p *Process) Ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.done:
		if err != nil || strings.Contains(p.log.String(), "aborted") {
			t.Errorf("%v\n%s", err, &p.log)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// AnswersAtTheEnd terminates an example that serves HTTP on loops at a path in the midst of a request: that is answered,
// and the process ends.
func AnswersAtTheEnd(t *testing.T, path, want string) {
	t.Helper()
	p := Run(t)
	connection, err := net.Dial("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(connection)
	answered := func() {
		t.Helper()
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != want || err != nil {
			t.Fatalf("%q, %v", body, err)
		}
	}
	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(connection, text); err != nil {
			t.Fatal(err)
		}
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"
	// Together, so that the part is there with the first response.
	write(request + request[:len(request)-1])
	answered()
	p.Terminate(t)
	p.stopped(t)
	write(request[len(request)-1:])
	answered()
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("it has not ended in order: %v", err)
	}
	_ = connection.Close()
	p.Ends(t)
}

// stopped waits until the example does not accept any more.
func (p *Process) stopped(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		connection, err := net.Dial("tcp", p.Address)
		if err != nil {
			return
		}
		_ = connection.Close()
		if time.Now().After(until) {
			t.Fatal("it goes on accepting")
		}
	}
}
