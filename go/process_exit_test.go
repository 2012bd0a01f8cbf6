//go:build unix

package quoit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// exits are the states of a connection in which a server's process ends: what the server does to get there, what its peer does
// meanwhile, and what the peer notes then.
var exits = []struct {
	name    string
	differs *difference
	server  func(conn net.Conn) // in the process that ends
	peer    func(e *exit)
	after   func(e *exit)
}{
	{"idle", nil, func(net.Conn) {}, nil, (*exit).readsAll},
	{"idle behind a round trip", nil, func(conn net.Conn) {
		io.CopyN(conn, conn, 5)
	}, func(e *exit) { roundTrip(e.t, e.conn, "hello") }, (*exit).readsAll},
	{"written, and not read by the peer", nil, func(conn net.Conn) {
		conn.Write(make([]byte, 5000))
	}, func(e *exit) { e.hasCome(5000) }, (*exit).readsAll},
	{"unread", unreadInMemory, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 3))
		waitUnread(conn)
	}, func(e *exit) { io.WriteString(e.conn, "abcunread") }, (*exit).readsAll},
	{"unread, and written", unreadInMemory, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 3))
		waitUnread(conn)
		conn.Write(make([]byte, 5000))
	}, func(e *exit) {
		io.WriteString(e.conn, "abcunread")
		e.hasCome(5000)
	}, (*exit).readsAll},
	{"much unread", nil, waitUnread, func(e *exit) {
		for {
			e.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if n, err := e.conn.Write(make([]byte, 1<<20)); n == 0 && err != nil {
				break
			}
		}
	}, (*exit).readsAll},
	{"half-closed by the peer", nil, func(conn net.Conn) {
		io.ReadAll(conn)
		conn.Write(make([]byte, 5000))
	}, func(e *exit) {
		e.conn.(writeCloser).CloseWrite()
		e.hasCome(5000)
	}, (*exit).readsAll},
	{"half-closed", nil, func(conn net.Conn) {
		conn.Write(make([]byte, 5000))
		conn.(writeCloser).CloseWrite()
	}, (*exit).readsAll, (*exit).failsToWrite},
	{"closed, and the peer has not", nil, func(conn net.Conn) {
		conn.Write(make([]byte, 5000))
		conn.Close()
	}, (*exit).readsAll, (*exit).failsToWrite},
	{"much that was written", &difference{
		"what is queued belongs to the process", map[string]string{"all of it true, and an end nil": "all of it false, and an end nil"},
	}, func(conn net.Conn) {
		written := 0
		for {
			conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := conn.Write(make([]byte, 1<<20))
			if written += n; n == 0 && err != nil {
				break
			}
		}
		fmt.Println("written", written)
	}, nil, func(e *exit) {
		n, err := io.Copy(io.Discard, struct{ io.Reader }{e.conn})
		e.see(fmt.Sprintf("all of it %v, and an end", n == int64(e.written)), err)
	}},
}

// unreadInMemory is what differs where nobody has read what came.
var unreadInMemory = &difference{"the loop has read what the program has not, so that the kernel has nothing to answer by a reset", map[string]string{
	"the peer reads 0 *fmt.wrapError{read tcp source true address true} of read broken timeout false":    "the peer reads 0 nil",
	"the peer reads 5000 *fmt.wrapError{read tcp source true address true} of read broken timeout false": "the peer reads 5000 nil",
}}

// waitUnread waits until there is something that can be read, and leaves it.
func waitUnread(conn net.Conn) {
	if ours, is := conn.(*quoit.NetConn); is {
		ours.WaitRead()
		return
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		panic(err)
	}
	raw.Read(func(fd uintptr) bool { return peeked(fd) > 0 })
}

// peeked is how many bytes of a socket can be read now.
func peeked(fd uintptr) int {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1<<16), syscall.MSG_PEEK)
	if err != nil {
		return 0
	}
	return n
}

// exit is what the peer of a process that ends sees.
type exit struct {
	recorder
	conn    net.Conn
	written int // by the process, if it has told
}

func (e *exit) readsAll() {
	all, err := io.ReadAll(e.conn)
	if err != nil {
		err = fmt.Errorf("%w", err)
	}
	e.see("the peer reads "+fmt.Sprint(len(all)), err)
}

// hasCome waits until so many bytes can be read, and leaves them.
func (e *exit) hasCome(count int) {
	raw, err := e.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool { return peeked(fd) >= count }); err != nil {
		e.t.Fatal(err)
	}
}

// failsToWrite notes how a write fails that nobody is there for any more.
func (e *exit) failsToWrite() {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := e.conn.Write([]byte("x")); err != nil {
			e.see("a later write", err)
			return
		}
	}
	e.see("no write fails")
}

// TestChildThatExits is what the processes of TestAProcessExitsAsOneOfPackageNet do.
func TestChildThatExits(t *testing.T) {
	state, network, address := os.Getenv("QUOIT_TEST_EXIT"), os.Getenv("QUOIT_TEST_NETWORK"), os.Getenv("QUOIT_TEST_ADDRESS")
	if state == "" {
		t.Skip("it is run by another test")
	}
	listen := net.Listen
	if name := os.Getenv("QUOIT_TEST_ENGINE"); name != "" {
		engine, err := quoit.ParseEngine(name)
		if err != nil {
			t.Fatal(err)
		}
		listen = func(network, address string) (net.Listener, error) {
			return quoit.Listen(network, address, quoit.WithEngine(engine), quiet())
		}
	}
	listener, err := listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listens", listener.Addr())
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range exits {
		if one.name == state {
			one.server(conn)
		}
	}
	fmt.Println("ready")
	// It is told to exit, or a signal ends it; and it ends with its parent.
	if line, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil && line == "exit\n" {
		os.Exit(3)
	}
	t.Fatal("nobody has ended it")
}

// What the peers see of a server whose process ends, in whichever way, is as of one of package net: with a connection in each state.
func TestAProcessExitsAsOneOfPackageNet(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name string
		end  func(child *exec.Cmd, orders io.Writer) error
	}{
		{"exit", func(_ *exec.Cmd, orders io.Writer) error { _, err := io.WriteString(orders, "exit\n"); return err }},
		{"SIGKILL", func(child *exec.Cmd, _ io.Writer) error { return child.Process.Kill() }},
		{"SIGTERM", func(child *exec.Cmd, _ io.Writer) error { return child.Process.Signal(syscall.SIGTERM) }},
	}
	for _, network := range []string{"tcp", "unix"} {
		for _, one := range exits {
			for _, way := range ways {
				trace := func(t *testing.T, engine string) []string {
					address := "127.0.0.1:0"
					if network == "unix" {
						address = filepath.Join(t.TempDir(), "socket")
					}
					child := exec.Command(program, "-test.run", "^TestChildThatExits$")
					child.Env = append(os.Environ(), "QUOIT_TEST_EXIT="+one.name, "QUOIT_TEST_NETWORK="+network,
						"QUOIT_TEST_ADDRESS="+address, "QUOIT_TEST_ENGINE="+engine, "GORACE=atexit_sleep_ms=0")
					orders, err := child.StdinPipe()
					if err != nil {
						t.Fatal(err)
					}
					output, err := child.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := child.Start(); err != nil {
						t.Fatal(err)
					}
					ended := false
					defer func() {
						if !ended {
							_ = child.Process.Kill() // the test has failed
							_ = child.Wait()
						}
					}()
					e := &exit{recorder: recorder{t: t}}
					lines := bufio.NewScanner(output)
					said := func(word string) string {
						for lines.Scan() {
							if rest, is := strings.CutPrefix(lines.Text(), word); is {
								return strings.TrimSpace(rest)
							}
						}
						t.Fatalf("the process has ended, and not said %q", word)
						return ""
					}
					at := said("listens")
					if e.conn, err = net.Dial(network, at); err != nil {
						t.Fatal(err)
					}
					defer e.conn.Close()
					e.conn.SetDeadline(time.Now().Add(patience))
					if one.peer != nil {
						one.peer(e)
					}
					if one.name == "much that was written" {
						if e.written, err = strconv.Atoi(said("written")); err != nil {
							t.Fatal(err)
						}
					}
					said("ready")
					if err := way.end(child, orders); err != nil {
						t.Fatal(err)
					}
					e.see("the process ends", fmt.Sprint(child.Wait()))
					ended = true
					one.after(e)
					return e.trace
				}
				t.Run(network+"/"+one.name+"/"+way.name, func(t *testing.T) {
					t.Parallel()
					stock := trace(t, "")
					for _, engine := range engines() {
						if engine == quoit.EngineStd {
							continue // its connections are package net's
						}
						t.Run(engine.String(), func(t *testing.T) {
							compare(t, stock, trace(t, engine.String()), one.differs.on(network))
						})
					}
				})
			}
		}
	}
}
