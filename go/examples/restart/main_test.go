package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quoit-io/quoit/go/examples/internal/exampletest"
)

const patience = time.Minute

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestItListensByItselfToo(t *testing.T) {
	client := &client{address: exampletest.Start(t, serve).String()}
	if err := client.ask(); err != nil {
		t.Fatal(err)
	}
	client.connection.Close()
}

// client keeps its connection until a response says that it closes. It sends nothing twice, as http.Transport does.
type client struct {
	address    string
	connection net.Conn
	reader     *bufio.Reader
	connects   int
}

func (c *client) ask() error {
	if c.connection == nil {
		connection, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		_ = connection.SetDeadline(time.Now().Add(patience))
		c.connection, c.reader = connection, bufio.NewReader(connection)
		c.connects++
	}
	if _, err := io.WriteString(c.connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || string(body) != "Hello, World!" {
		return io.ErrUnexpectedEOF
	}
	if response.Close {
		c.connection.Close()
		c.connection = nil
	}
	return nil
}

// A process after another, each on its socket, while clients ask all the time: none of them sees anything but answers.
func TestRestartsLoseNoRequest(t *testing.T) {
	engines := exampletest.Engines(t)
	socket, address := listeningSocket(t)
	old := exampletest.RunInherited(t, socket, "-engine", engines[0], "-keep-idle", "1h")
	var over atomic.Bool
	var clients sync.WaitGroup
	for range 16 {
		client := &client{address: address}
		if err := client.ask(); err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			defer func() {
				if client.connection != nil {
					client.connection.Close()
				}
			}()
			for !over.Load() {
				if err := client.ask(); err != nil {
					t.Error(err)
					return
				}
			}
			if client.connects < 2 {
				t.Error("it met no restart")
			}
		})
	}
	for restart := range 2 * len(engines) {
		next := exampletest.RunInherited(t, socket, "-engine", engines[(restart+1)%len(engines)], "-keep-idle", "1h")
		old.Terminate(t)
		// When each of its connections was told.
		old.Ends(t)
		old = next
	}
	over.Store(true)
	clients.Wait()
	old.Terminate(t)
	old.Ends(t)
}

func TestADescriptorThatIsNoSocketIsSaid(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	exampletest.EndsInherited(t, file, "LISTEN_FD_3")
}

func listeningSocket(t *testing.T) (*os.File, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, listener.Addr().String()
}
