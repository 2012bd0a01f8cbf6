package quoit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// unixNames are names of files and abstract ones that mean something else where backslashes escape.
func unixNames(folder string) []string {
	var names []string
	for _, name := range []string{`a\b`, `a\x41`, `a\\b`, `end\`, "a\nb", "\xff", "ü", "a%lo", `@\x41`} {
		names = append(names, filepath.Join(folder, name))
	}
	// Whatever else there is on this machine.
	own := fmt.Sprintf("@quoit-%d-", os.Getpid())
	return append(names, own+`a\b`, own+`a\x41`, own+`\`, own+"\xff", own+"a\nb", own+strings.Repeat(`\`, 107-len(own)))
}

// The name of a Unix socket is what package net takes it for.
func TestNamesOfUnixSocketsAreThoseOfPackageNet(t *testing.T) {
	compareDoors(t, nil, func(r *recorder, d *door) {
		folder := r.t.TempDir()
		for _, path := range unixNames(folder) {
			what := fmt.Sprintf("%q", strings.TrimPrefix(path, folder))
			l, err := d.listen("unix", path)
			r.see(what, err)
			if err != nil {
				continue
			}
			r.see(what+", local", l.Addr().String() == path)
			if !strings.HasPrefix(path, "@") {
				_, err = os.Stat(path)
				r.see(what+", its file", err)
			}
			dialled, err := d.dial(context.Background(), "unix", path)
			r.see(what+", dialled", err)
			// Who dials by package net finds it, too.
			plain, err := net.Dial("unix", path)
			r.see(what+", dialled by package net", err)
			if dialled != nil && plain != nil {
				other := r.accept(l)
				r.see(what+", addresses", dialled.RemoteAddr().String() == path, other.LocalAddr().String() == path)
				other.Close()
				dialled.Close()
				plain.Close()
			}
			_, err = d.listen("unix", path)
			r.see(what+", in use", err)
			if failed := (*net.OpError)(nil); errors.As(err, &failed) && failed.Addr != nil {
				r.see(what+", the address in its error", failed.Addr.String() == path)
			}
			l.Close()
			_, err = os.Stat(path)
			r.see(what+", closed", err)
		}
	})
}

// A client's own name is what it is called by the server.
func TestNamesOfUnixPeersAreTheirOwn(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		folder := t.TempDir()
		listener, err := quoit.Listen("unix", filepath.Join(folder, "server"), engine, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for _, path := range unixNames(folder) {
			dialer := net.Dialer{LocalAddr: &net.UnixAddr{Name: path, Net: "unix"}}
			connection, err := dialer.Dial("unix", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if name := accepted.RemoteAddr().String(); name != path {
				t.Errorf("%q is called %q", path, name)
			}
			accepted.Close()
			connection.Close()
		}
	})
}

// Servers with a Handler, for streams and for datagrams, take names as they are.
func TestServersOnUnixNames(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		folder := t.TempDir()
		for _, path := range unixNames(folder) {
			server, err := quoit.Start("unix:"+path, echoes(), engine, quiet())
			if err != nil {
				t.Errorf("%q: %v", path, err)
				continue
			}
			connection, err := net.Dial("unix", path)
			if err != nil {
				t.Errorf("%q: %v", path, err)
			} else {
				roundTrip(t, connection, "hello")
				connection.Close()
			}
			if name := server.Addr().String(); name != path {
				t.Errorf("%q is called %q", path, name)
			}
			if err := server.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			_ = os.Remove(path) // it may be gone
			datagrams := startDatagrams(t, "unixgram", path, answers(t), engine)
			if name := datagrams.Addr().String(); name != path {
				t.Errorf("datagrams: %q is called %q", path, name)
			}
			client, err := net.DialUnix("unixgram", &net.UnixAddr{Name: filepath.Join(folder, "client"), Net: "unixgram"},
				&net.UnixAddr{Name: path, Net: "unixgram"})
			if err == nil {
				ask(t, client, "hello", "hello")
				client.Close()
			} else {
				t.Errorf("datagrams: %q: %v", path, err)
			}
			_ = os.Remove(filepath.Join(folder, "client"))
		}
	})
}

// A server needs a name. One that the kernel makes up is nobody's to find, and an empty setting is a mistake rather than a wish.
func TestAServerOnNoUnixName(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		server, err := quoit.Start("unix:", echoes(), engine, quiet())
		if err == nil {
			_ = server.Shutdown(t.Context())
			t.Fatal("it listens on", server.Addr())
		}
		if text := err.Error(); !strings.Contains(text, "unix:PATH") {
			t.Error(text)
		}
	})
}
