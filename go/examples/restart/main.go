// Restart serves net/http on a socket that it inherits, and ends so that the process which takes over from it loses no request:
// start that one first, then send this one SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
)

var (
	engine   = flag.String("engine", "auto", "uring, epoll, std or auto")
	keepIdle = flag.Duration("keep-idle", 5*time.Second, "how long idle connections are kept when it ends")
)

func main() { example.Run(serve) }

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	listener, err := listen(address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "Hello, World!") })
	var open connections
	server := &http.Server{Handler: open.lastResponses(mux), ConnState: open.count}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(listener.Addr())
	<-ctx.Done()

	// Serve goes on with the connections that were accepted already, and returns then.
	open.ending.Store(true)
	listener.StopAccepting()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		return err
	}
	// Shutdown would close idle connections at once, and with them a request that is on its way. So each is told by the response
	// to that request; those that ask nothing more in that time are left to Shutdown.
	open.wait(*keepIdle)
	return example.Drain(server.Shutdown, listener.Shutdown)
}

// listen listens on the inherited socket, or without one on the address.
func listen(address string) (*quoit.Listener, error) {
	engines := map[string]quoit.Engine{
		"auto": quoit.EngineAuto, "uring": quoit.EngineURing, "epoll": quoit.EngineEpoll, "std": quoit.EngineStd,
	}
	options := quoit.WithEngine(engines[*engine])
	file := inherited()
	if file == nil {
		return quoit.Listen("tcp", address, options)
	}
	defer file.Close()
	return quoit.FileListener(file, options)
}

// inherited is the first socket that was handed to this process (sd_listen_fds(3)), if there is one.
func inherited() *os.File {
	number, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || number < 1 {
		return nil
	}
	syscall.CloseOnExec(3)
	return os.NewFile(3, "LISTEN_FD_3")
}

// connections are those of a server that may come to its end.
type connections struct {
	ending atomic.Bool
	mu     sync.Mutex
	open   int
	none   chan struct{} // when somebody waits for that
}

// lastResponses has each response say that the connection closes, once the server ends. For HTTP/2, net/http makes GOAWAY of it.
func (c *connections) lastResponses(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.ending.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// count is the server's ConnState.
func (c *connections) count(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
		if c.open == 0 && c.none != nil {
			close(c.none)
			c.none = nil
		}
	}
}

// wait waits until none is open, or so long.
func (c *connections) wait(limit time.Duration) {
	none := make(chan struct{})
	c.mu.Lock()
	if c.open == 0 {
		close(none)
	} else {
		c.none = none
	}
	c.mu.Unlock()
	select {
	case <-none:
	case <-time.After(limit):
	}
}
