package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// asExample and patience are those of package exampletest.
const asExample, patience = "QUOIT_EXAMPLE_TEST=1", time.Minute

// get asks once, on a connection of its own.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

// It is started as the chart of deploy/kubernetes starts it, and taken down as the kubelet does it.
func TestAPodThatIsTakenDownIsNotReadyAndFinishesWhatItHas(t *testing.T) {
	command := exec.Command(os.Args[0], "-listen=127.0.0.1:0", "-metrics=127.0.0.1:0", "-engine=auto", "-loops=2",
		"-connections=64", "-drain=60s")
	command.Env = append(os.Environ(), asExample)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Process.Kill()
	var listening, metrics string
	if _, err := fmt.Fscanf(output, "listening on %s\nmetrics on %s\n", &listening, &metrics); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readyz", "/livez"} {
		if status, body := get(t, metrics, path); status != 200 || body != "ok" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, body := get(t, metrics, "/metrics"); status != 200 || !strings.Contains(body, "quoit_turns_total{") {
		t.Errorf("%d %q", status, body)
	}
	connection, err := net.Dial("tcp", listening)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(patience))
	const request = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
	reader := bufio.NewReader(connection)
	answered := func(more string) {
		t.Helper()
		if _, err := io.WriteString(connection, more); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != "Hello, World!" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	}
	// A whole request, and the beginning of another.
	answered(request + request[:10])
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); ; {
		refused, err := net.Dial("tcp", listening)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			refused.Close()
		}
		if time.Now().After(until) {
			t.Fatal("it goes on accepting")
		}
	}
	if status, body := get(t, metrics, "/readyz"); status != 503 || body != "draining" {
		t.Errorf("%d %q", status, body)
	}
	if status, _ := get(t, metrics, "/livez"); status != 200 {
		t.Error("it is to be started again while it drains")
	}
	answered(request[10:])
	connection.Close()
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}
