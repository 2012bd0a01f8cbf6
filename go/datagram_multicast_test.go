package quoit_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// groupSender makes a socket whose datagrams for groups leave by the loopback interface, or skips the test.
func groupSender(t *testing.T) *net.UDPConn {
	t.Helper()
	sender, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	raw, err := sender.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = multicastBy(fd, [4]byte{127, 0, 0, 1}) })
	if err != nil {
		t.Skip(err)
	}
	return sender
}

func TestMulticast(t *testing.T) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		if _, err := quoit.StartDatagrams("udp", ":0", &datagramHandler{}, quiet(), engine,
			quoit.WithMulticastGroup(netip.MustParseAddr("127.0.0.1"), nil)); err == nil {
			t.Error("127.0.0.1 was taken for a group")
		}
		came := make(chan string, 4)
		handler := &datagramHandler{datagram: func(_ *quoit.DatagramSocket, batch []quoit.Datagram) {
			came <- string(batch[0].Bytes)
		}}
		server := startDatagrams(t, "udp4", ":0", handler, engine, quoit.WithLoops(1),
			quoit.WithMulticastGroup(netip.MustParseAddr("239.1.2.3"), loopback))
		sender := groupSender(t)
		to := &net.UDPAddr{IP: net.IPv4(239, 1, 2, 3), Port: server.Addr().(*net.UDPAddr).Port}
		if _, err := sender.WriteTo([]byte("all"), to); err != nil {
			t.Fatal(err)
		}
		if text := receive(t, came); text != "all" {
			t.Error(text)
		}
	})
}

// TestMulticastJoinedLater joins and leaves a group from a callback; that of the next datagram finds it done.
func TestMulticastJoinedLater(t *testing.T) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	group := netip.MustParseAddr("239.1.2.4")
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		came, failed := make(chan string, 4), make(chan error, 4)
		handler := &datagramHandler{
			datagram: func(s *quoit.DatagramSocket, batch []quoit.Datagram) {
				for index := range batch {
					one := &batch[index]
					var err error
					switch string(one.Bytes) {
					case "join":
						err = s.JoinGroup(group, loopback)
					case "leave":
						err = s.LeaveGroup(group, loopback)
					case "wrong":
						err = s.JoinGroup(netip.MustParseAddr("127.0.0.1"), nil)
					case "other":
						err = s.JoinGroup(netip.MustParseAddr("ff02::1"), nil)
					case "all":
						came <- one.Peer.String()
						continue
					}
					answer := "done"
					if err != nil {
						answer = err.Error()
					}
					if err := s.Reply(one, []byte(answer)); err != nil {
						t.Error(err)
					}
				}
			},
			failed: func(_ *quoit.DatagramSocket, err error) { failed <- err },
		}
		server := startDatagrams(t, "udp4", "0.0.0.0:0", handler, engine, quoit.WithLoops(1))
		port := server.Addr().(*net.UDPAddr).Port
		connection := dialUDP(t, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if server.Loops().Engine() == quoit.EngineStd {
			ask(t, connection, "join", "quoit: without libquoit a socket cannot join a group once it is open: unsupported operation")
			return
		}
		ask(t, connection, "wrong", "quoit: 127.0.0.1 is not a multicast group")
		ask(t, connection, "other", "quoit: ff02::1 is not a group for a socket of udp4")
		ask(t, connection, "join", "done")
		ask(t, connection, "?", "done")
		sender := groupSender(t)
		to := &net.UDPAddr{IP: group.AsSlice(), Port: port}
		if _, err := sender.WriteTo([]byte("all"), to); err != nil {
			t.Fatal(err)
		}
		if from := receive(t, came); from != sender.LocalAddr().String() {
			t.Error(from)
		}
		// Joined twice is told, and the socket goes on.
		ask(t, connection, "join", "done")
		if err := receive(t, failed); !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
		ask(t, connection, "leave", "done")
		ask(t, connection, "leave", "done")
		if err := receive(t, failed); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Error(err)
		}
		// A second leaving could not fail so if the first had not been done.
		ask(t, connection, "?", "done")
	})
}

// Who listens on the address of a group listens on all of this host's, and leaves the port to others who do so, as with package net.
func TestTheAddressOfAGroupIsListenedOnAsByPackageNet(t *testing.T) {
	for _, host := range []string{"224.0.0.251", "ff02::fb", "ff02::fb%lo", "239.1.2.3"} {
		for _, network := range []string{"udp", "udp4", "udp6"} {
			t.Run(network+" "+host, func(t *testing.T) {
				compareDoors(t, nil, func(r *recorder, d *door) {
					one, err := d.listenPacket(network, net.JoinHostPort(host, "0"))
					r.see("listen", err)
					if err != nil {
						return
					}
					defer one.Close()
					r.place("local", one.LocalAddr())
					port := fmt.Sprint(one.LocalAddr().(*net.UDPAddr).Port)
					other, err := d.listenPacket(network, net.JoinHostPort(host, port))
					r.see("another", err)
					if err == nil {
						r.place("local", other.LocalAddr())
						other.Close()
					}
				})
			})
		}
	}
}
