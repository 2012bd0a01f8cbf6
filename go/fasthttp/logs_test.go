package fasthttp_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	loop "github.com/quoit-io/quoit/go/fasthttp"
	"github.com/valyala/fasthttp"
)

const line = "a line of a handler"

// TestChildOfFasthttpThatLogs is what the processes of TestAHandlersLogIsNotLost do.
func TestChildOfFasthttpThatLogs(t *testing.T) {
	name := os.Getenv("QUOIT_TEST_LOGS")
	if name == "" {
		t.Skip("it is run by another test")
	}
	handler := func(ctx *fasthttp.RequestCtx) { ctx.Logger().Printf(line) }
	var address net.Addr
	if name == "stock" {
		address = serveStock(t, &fasthttp.Server{Handler: handler})
	} else {
		engine, err := quoit.ParseEngine(name)
		if err != nil {
			t.Fatal(err)
		}
		address = serve(t, engine, loop.New(handler))
	}
	c := dial(t, address)
	io.WriteString(c, get)
	c.answer(t, "GET")
}

// What a handler logs of a server without a logger is written to the process's error output, once.
func TestAHandlersLogIsNotLost(t *testing.T) {
	logs := func(t *testing.T, name string) {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(program, "-test.run", "^TestChildOfFasthttpThatLogs$", "-test.v")
		child.Env = append(os.Environ(), "QUOIT_TEST_LOGS="+name)
		var output strings.Builder
		child.Stderr = &output
		said, err := child.Output()
		if err != nil {
			t.Errorf("%v\n%s%s", err, said, output.String())
		} else if strings.Count(output.String(), line) != 1 && !strings.Contains(string(said), "SKIP") {
			t.Errorf("%q", output.String())
		}
	}
	t.Run("stock", func(t *testing.T) { logs(t, "stock") })
	onEngines(t, func(t *testing.T, engine quoit.Engine) { logs(t, engine.String()) })
}
