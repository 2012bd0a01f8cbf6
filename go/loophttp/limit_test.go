package loophttp_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/loophttp"
)

// A request of which more than half of what a connection may keep has come is waited for, also when more than that had come
// meanwhile, so that receiving was paused.
func TestTheRestOfALargeRequestIsReceivedBehindManySmallOnes(t *testing.T) {
	const limit, small, large, part = 64 << 10, 1500, 60 << 10, 50 << 10
	onEngines(t, func(t *testing.T, engine quoit.Engine) {
		sent := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				<-sent // what is behind it comes in one turn
			}
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, strconv.Itoa(len(body)))
		})
		c := dial(t, serve(t, engine, loophttp.New(handler, loophttp.RequestLimit(limit)), quoit.WithInboundLimit(limit)))
		io.WriteString(c.Conn, "GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
		io.WriteString(c.Conn, strings.Repeat(plainGet, small)+
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(large)+"\r\n\r\n"+strings.Repeat("z", part))
		close(sent)
		for range small + 1 {
			if _, body := c.answer(t, "GET"); body != "0" {
				t.Fatal(body)
			}
		}
		io.WriteString(c.Conn, strings.Repeat("z", large-part))
		if _, body := c.answer(t, "POST"); body != strconv.Itoa(large) {
			t.Error(body)
		}
	})
}

// Requests that a connection cannot keep would be waited for without end.
func TestARequestLimitAboveTheInboundLimitIsAnError(t *testing.T) {
	server, err := quoit.Start("127.0.0.1:0", loophttp.New(nil, loophttp.RequestLimit(64<<10+1)), quoit.WithEngine(quoit.EngineStd))
	if err == nil {
		_ = server.Shutdown(t.Context())
		t.Fatal("it has started")
	}
	if !strings.Contains(err.Error(), "WithInboundLimit(65536)") {
		t.Error(err)
	}
}
