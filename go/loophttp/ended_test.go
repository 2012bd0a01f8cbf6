package loophttp_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
)

// What leaves the loops when its http.Server has ended is closed, and not left to wait for it: behind what it still had to be sent.
func TestWhatLeavesTheLoopsBehindTheEndOfTheServerIsClosed(t *testing.T) {
	const chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
	for name, end := range map[string]func(t *testing.T, h *loophttp.Handler, server *http.Server) error{
		"Close": func(_ *testing.T, h *loophttp.Handler, _ *http.Server) error { return h.Close() },
		"Shutdown": func(t *testing.T, _ *loophttp.Handler, server *http.Server) error {
			return server.Shutdown(t.Context())
		},
	} {
		for _, served := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, served before %v", name, served), func(t *testing.T) {
				onEngines(t, func(t *testing.T, engine quoit.Engine) {
					server := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
					h := loophttp.New(routes(), loophttp.WithServer(server))
					address := serve(t, engine, h)
					if served {
						before := dial(t, address)
						io.WriteString(before, chunked)
						if _, text := before.answer(t, "POST"); text != "a" {
							t.Errorf("%q", text)
						}
						before.Close()
					}
					if err := end(t, h, server); err != nil {
						t.Error(err)
					}
					c := dial(t, address)
					io.WriteString(c, chunked)
					if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
						t.Errorf("%q, %v", rest, err)
					}
					c = dial(t, address)
					io.WriteString(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
					if _, text := c.answer(t, "GET"); len(text) != 3<<20 {
						t.Errorf("%d bytes", len(text))
					}
					if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
						t.Errorf("%q, %v", rest, err)
					}
				})
			})
		}
	}
}
