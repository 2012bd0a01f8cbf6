package quoit_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// Where nobody listens at a port that the kernel gives to who connects, it may give that one: then who connects would reach itself. It
// is refused, as by package net. In a network with two such ports the kernel gives that one first.
func TestADialDoesNotReachItself(t *testing.T) {
	const child = "QUOIT_TEST_DIALS_ITSELF"
	refused := func(t *testing.T, dial func(network, address string) (net.Conn, error)) {
		if os.Getenv(child) == "" {
			inANetworkOfTwoPorts(t, child+"=yes")
			return
		}
		conn, err := dial("tcp", "127.0.0.1:40000")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, %v", conn, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	t.Run("net", func(t *testing.T) { refused(t, net.Dial) })
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) { refused(t, newDialer(t, engine).Dial) })
}

// inANetworkOfTwoPorts runs the test in a process of a network of its own.
func inANetworkOfTwoPorts(t *testing.T, variable string) {
	const ready = "ip link set lo up && echo 40000 40001 > /proc/sys/net/ipv4/ip_local_port_range"
	in := []string{"--user", "--map-root-user", "--net", "sh", "-c"}
	if output, err := exec.Command("unshare", append(in, ready)...).CombinedOutput(); err != nil {
		t.Skipf("there is no network of one's own: %v: %s", err, output)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inside := exec.Command("unshare", append(in, ready+` && exec "$0" "$@"`, program, "-test.run", "^"+t.Name()+"$", "-test.v")...)
	inside.Env = append(os.Environ(), variable)
	if output, err := inside.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, output)
	}
}
