// The command net echoes on the standard library's connections: a goroutine each, which blocks to receive and
// then sends. And it answers queries by a DNS library on the standard library's net.PacketConn.
package main

import (
	"net"

	"quoit-lab/peers/internal/handlers"
	"quoit-lab/peers/internal/peer"
)

func main() {
	peer.Run("net", []string{"echo", "dns"}, func(arguments peer.Arguments) error {
		if arguments.Service == "dns" {
			conn, err := net.ListenPacket("udp", arguments.Listen.String())
			if err != nil {
				return err
			}
			return peer.Datagrams(arguments, conn, handlers.DNS, "net", "")
		}
		return peer.Accept(arguments, "net", "", serve)
	})
}

func serve(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go echo(connection)
	}
}

func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, peer.EchoBytes)
	for {
		count, err := connection.Read(buffer)
		if count > 0 {
			if _, err := connection.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
