package quoit_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// What is longer than the memory that it is read into is cut, and says so: to ReadMsgUDP of package net, and to OnDatagram.
func TestCutDatagramsSaySo(t *testing.T) {
	stock, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	stock.SetDeadline(time.Now().Add(patience))
	texts := []string{"longer", "long", "", "4444"}
	see := func(r *recorder, text string, cut bool) { r.see(fmt.Sprintf("%q", text), cut) }
	expected := &recorder{t: t}
	peer := dialUDP(t, stock.LocalAddr())
	for _, text := range texts {
		peer.Write([]byte(text))
		memory := make([]byte, 4)
		n, _, flags, _, err := stock.ReadMsgUDP(memory, nil)
		if err != nil {
			t.Fatal(err)
		}
		see(expected, string(memory[:n]), flags&syscall.MSG_TRUNC != 0)
	}
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		ours := &recorder{t: t}
		came := make(chan struct{})
		server := startDatagrams(t, "udp4", "127.0.0.1:0", &datagramHandler{datagram: func(_ *quoit.DatagramSocket, batch []quoit.Datagram) {
			for _, one := range batch {
				see(ours, string(one.Bytes), one.Truncated)
			}
			came <- struct{}{}
		}}, engine, quoit.WithLoops(1), quoit.WithMaxDatagram(4))
		peer := dialUDP(t, server.Addr())
		for _, text := range texts {
			peer.Write([]byte(text))
			receive(t, came)
		}
		compare(t, expected.trace, ours.trace, nil)
	})
}
