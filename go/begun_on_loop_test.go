package quoit_test

import (
	"net"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// A handler may begin to serve on the loops that it runs on. As with package net, nothing waits.
func TestALoopsHandlerBeginsToServeOnIt(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(2))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { loops.Close() })
		type begun struct {
			server   *quoit.Server
			listener *quoit.Listener
			socket   *quoit.PacketConn
			err      error
		}
		begins := make(chan begun, 1)
		first := start(t, &handler{data: func(c *quoit.Conn) {
			var now begun
			now.server, now.err = quoit.Start("127.0.0.1:0", echoes(), quoit.OnLoops(loops))
			if now.err == nil {
				now.listener, now.err = quoit.Listen("tcp", "127.0.0.1:0", quoit.OnLoops(loops))
			}
			if now.err == nil {
				now.socket, now.err = quoit.ListenPacket("udp", "127.0.0.1:0", quoit.OnLoops(loops))
			}
			begins <- now
			c.WriteTo(c)
		}}, quoit.OnLoops(loops))
		roundTrip(t, dial(t, first.Addr()), "begin")
		now := <-begins
		if now.err != nil {
			t.Fatal(now.err)
		}
		defer shutDown(t, now.server)
		defer now.listener.Close()
		defer now.socket.Close()
		roundTrip(t, dial(t, now.server.Addr()), "server")
		go func() {
			if accepted, err := now.listener.Accept(); err == nil {
				buffer := make([]byte, 8)
				n, _ := accepted.Read(buffer)
				_, _ = accepted.Write(buffer[:n])
				accepted.Close()
			}
		}()
		roundTrip(t, dial(t, now.listener.Addr()), "listener")
		client, err := net.Dial("udp", now.socket.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 16)
		if n, _, err := now.socket.ReadFrom(buffer); err != nil || string(buffer[:n]) != "datagram" {
			t.Errorf("%q, %v", buffer[:n], err)
		}
	})
}
