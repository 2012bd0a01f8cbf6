package quoit_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// TestChildThatCrashes is what the processes of TestAPanicCanEndTheProgram do.
func TestChildThatCrashes(t *testing.T) {
	engine, err := quoit.ParseEngine(os.Getenv("QUOIT_TEST_ENGINE"))
	if err != nil {
		t.Skip("it is run by another test")
	}
	server := start(t, &handler{data: func(*quoit.Conn) { panic("as asked") }}, quoit.WithEngine(engine),
		quoit.WithCrashOnPanic())
	client := dial(t, server.Addr())
	io.WriteString(client, "x")
	client.Read(make([]byte, 1)) // returns when the test is over otherwise
}

func TestAPanicCanEndTheProgram(t *testing.T) {
	for _, engine := range engines() {
		command := exec.Command(os.Args[0], "-test.run", "^TestChildThatCrashes$")
		command.Env = append(os.Environ(), "QUOIT_TEST_ENGINE="+engine.String())
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "panic: as asked") {
			t.Errorf("%v: %v\n%s", engine, err, output)
		}
	}
}
