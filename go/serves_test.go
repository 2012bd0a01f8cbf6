package quoit_test

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// pace is the time between two requests of an idle peer: the loop sleeps in between, and has to be told each time.
const pace = 10 * time.Millisecond

// Peers that ask rarely, peers that ask at once, and peers that reset, of a Listener and of a PacketConn. Whoever is not
// told of what has come makes it hang. `make kernels` runs these with other kernels and other values of GOMAXPROCS.

func TestServesStreamsToAnIdlePeer(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		peer := dial(t, echoConnections(t, engine))
		for round := range 30 {
			time.Sleep(pace)
			roundTrip(t, peer, strconv.Itoa(round))
		}
	})
}

func TestServesStreamsToBusyPeers(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		address := echoConnections(t, engine)
		var peers sync.WaitGroup
		for range 8 {
			peer := dial(t, address)
			peers.Go(func() {
				for round := range 100 {
					if err := answer(peer, strconv.Itoa(round)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		peers.Wait()
	})
}

// Each peer leaves with a reset, some before they are answered; one that stays is served all the time.
func TestServesStreamsWhilePeersReset(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		address := echoConnections(t, engine)
		stays := dial(t, address)
		for round := range 50 {
			leaves, err := net.Dial(address.Network(), address.String())
			if err != nil {
				t.Fatal(err)
			}
			leaves.SetDeadline(time.Now().Add(patience))
			if round%2 == 0 {
				roundTrip(t, leaves, "soon gone")
			} else if _, err := io.WriteString(leaves, "gone"); err != nil {
				t.Fatal(err)
			}
			if err := leaves.(*net.TCPConn).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			leaves.Close()
			roundTrip(t, stays, strconv.Itoa(round))
		}
	})
}

func TestServesDatagramsToAnIdlePeer(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		peer := dial(t, echoPackets(t, engine))
		for round := range 30 {
			time.Sleep(pace)
			roundTrip(t, peer, strconv.Itoa(round))
		}
	})
}

func TestServesDatagramsToBusyPeers(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		address := echoPackets(t, engine)
		var peers sync.WaitGroup
		for range 8 {
			// One datagram of each peer at a time: none is dropped for want of room.
			peer := dial(t, address)
			peers.Go(func() {
				for round := range 100 {
					if err := answer(peer, strconv.Itoa(round)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		peers.Wait()
	})
}

// answer is roundTrip for goroutines that are not the test's own.
func answer(connection io.ReadWriter, text string) error {
	if _, err := io.WriteString(connection, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(connection, back); err != nil {
		return err
	}
	if string(back) != text {
		return errors.New(strconv.Quote(text) + " came back as " + strconv.Quote(string(back)))
	}
	return nil
}

// echoConnections echoes with a goroutine per connection, as servers over package net do.
func echoConnections(t *testing.T, engine quoit.Option) net.Addr {
	t.Helper()
	listener, err := quoit.Listen("tcp", "127.0.0.1:0", engine, quiet())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer connection.Close()
				// A peer that resets ends it with an error, which is what it asked for.
				io.Copy(connection, connection)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr()
}

// echoPackets echoes datagrams with one goroutine.
func echoPackets(t *testing.T, engine quoit.Option) net.Addr {
	t.Helper()
	connection, err := quoit.ListenPacket("udp", "127.0.0.1:0", engine, quiet())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buffer := make([]byte, 2048)
		for {
			length, from, err := connection.ReadFrom(buffer)
			if err != nil {
				return
			}
			if _, err := connection.WriteTo(buffer[:length], from); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		connection.Close()
		serving.Wait()
	})
	return connection.LocalAddr()
}
