// Package peer holds what the rivals share: the command line, the runtime's settings, the ready line and the
// end, so that each rival is nothing but its framework at work.
package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// EchoBytes is the size of one receive of an echoed stream: as many as Quoit's floors take at once.
const EchoBytes = 64 * 1024

// gcPercent lets the heap grow to five times what is live before it is collected. The servers' live heaps are
// a few megabytes, at which the default of 100 collects many times a second. GOGC overrides it.
const gcPercent = 400

// Arguments is what was asked for on the command line.
type Arguments struct {
	// Service is what is served, such as "echo" or "http".
	Service string
	// Listen is the address to listen on; port 0 for any.
	Listen *net.TCPAddr
	// Loops is the number of threads that run Go code at once.
	Loops int
	// Choices is what was said of the options that only this rival has, or their defaults.
	Choices map[string]string
}

// Choice is an option that takes one of several words, of which the first is the default; or, without words, any text,
// by default none, of which Form says in the usage what it is.
type Choice struct {
	Name  string
	Words []string
	Form  string
}

// form is what the usage says that the option takes.
func (c Choice) form() string {
	if c.Words == nil {
		return c.Form
	}
	return strings.Join(c.Words, "|")
}

func (c Choice) takes(word string) bool { return c.Words == nil || slices.Contains(c.Words, word) }

// Writes is how a rival writes that could do both: once for all that is at hand, or for each response.
var Writes = Choice{Name: "--writes", Words: []string{"batch", "each"}}

// Run parses the command line, applies the runtime's settings and serves until serve returns; it does not
// return itself. Its own options are the choices. Exit status: 0 if serve returns nil, 1 if it fails, 2 for wrong usage.
func Run(name string, services []string, serve func(Arguments) error, choices ...Choice) {
	arguments, err := parse(name, services, os.Args[1:], choices)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(arguments.Loops)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := serve(arguments); err != nil {
		fmt.Fprintf(os.Stderr, "%s: serving on %v: %v\n", name, arguments.Listen, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parse(name string, services, words []string, choices []Choice) (Arguments, error) {
	text := fmt.Sprintf("usage: %s %s [--listen HOST:PORT] [--loops N]", name, strings.Join(services, "|"))
	for _, choice := range choices {
		text += fmt.Sprintf(" [%s %s]", choice.Name, choice.form())
	}
	usage := errors.New(text)
	arguments := Arguments{Listen: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Loops: 1, Choices: map[string]string{}}
	for _, choice := range choices {
		if choice.Words != nil {
			arguments.Choices[choice.Name] = choice.Words[0]
		}
	}
	if len(words)%2 == 0 || !slices.Contains(services, words[0]) {
		return arguments, usage
	}
	arguments.Service = words[0]
	for option := range slices.Chunk(words[1:], 2) {
		var err error
		switch option[0] {
		case "--listen":
			arguments.Listen, err = net.ResolveTCPAddr("tcp", option[1])
			if err != nil || arguments.Listen.IP == nil {
				return arguments, fmt.Errorf("--listen takes HOST:PORT, and %q is none", option[1])
			}
		case "--loops":
			arguments.Loops, err = strconv.Atoi(option[1])
			if err != nil || arguments.Loops < 1 || arguments.Loops > 1024 {
				return arguments, fmt.Errorf("--loops takes 1 to 1024, and not %q", option[1])
			}
		default:
			taken := slices.ContainsFunc(choices, func(choice Choice) bool {
				return choice.Name == option[0] && choice.takes(option[1])
			})
			if !taken {
				return arguments, usage
			}
			arguments.Choices[option[0]] = option[1]
		}
	}
	return arguments, nil
}

// Ready says on standard output that the server can be reached. module is the framework's path, or empty for
// the standard library.
func Ready(address net.Addr, name string, loops int, module string) {
	version := runtime.Version()
	if build, ok := debug.ReadBuildInfo(); ok && module != "" {
		version = "unknown"
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				version = strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	fmt.Printf("listening on %v engine=%s loops=%d version=%s\n", address, name, loops, version)
}

// Signals is where SIGTERM and SIGINT arrive.
func Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

// Datagrams answers queries on a socket until a signal arrives. name and module are as for Ready.
func Datagrams(arguments Arguments, conn net.PacketConn, handler dns.Handler, name, module string) error {
	signals := Signals()
	server := dns.Server{PacketConn: conn, Handler: handler}
	server.NotifyStartedFunc = func() { Ready(conn.LocalAddr(), name, arguments.Loops, module) }
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	select {
	case err := <-ended:
		return errors.Join(errors.New("the server ended by itself"), err)
	case <-signals:
		return server.Shutdown()
	}
}

// Accept serves on a listener of the standard library until a signal arrives.
func Accept(arguments Arguments, name, module string, serve func(net.Listener) error) error {
	signals := Signals()
	// Nothing in the options of a Go listener makes it faster: TCP_NODELAY is its default, and its backlog is
	// the system's limit. Setting keep-alive probes would cost every connection further system calls.
	config := net.ListenConfig{KeepAlive: -1}
	listener, err := config.Listen(context.Background(), "tcp", arguments.Listen.String())
	if err != nil {
		return err
	}
	Ready(listener.Addr(), name, arguments.Loops, module)
	ended := make(chan error, 1)
	go func() { ended <- serve(listener) }()
	select {
	case err = <-ended:
		return errors.Join(errors.New("the server ended by itself"), err)
	case <-signals:
		return nil
	}
}

// Reserve resolves port 0 for servers that bind the same port once a loop with SO_REUSEPORT. The reservation
// is a socket that never listens, so no connection goes to it; it lasts as long as the process.
func Reserve(address *net.TCPAddr) (*net.TCPAddr, error) {
	if address.Port != 0 {
		return address, nil
	}
	var (
		family int
		name   unix.Sockaddr
	)
	if ip := address.IP.To4(); ip != nil {
		family, name = unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte(ip)}
	} else {
		family, name = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte(address.IP.To16())}
	}
	descriptor, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	if err = unix.SetsockoptInt(descriptor, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, fmt.Errorf("sharing a port: %w", err)
	}
	if err = unix.Bind(descriptor, name); err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	bound, err := unix.Getsockname(descriptor)
	if err != nil {
		return nil, fmt.Errorf("reading the reserved port: %w", err)
	}
	resolved := *address
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		resolved.Port = bound.Port
	case *unix.SockaddrInet6:
		resolved.Port = bound.Port
	}
	return &resolved, nil
}
