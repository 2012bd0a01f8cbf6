package quoit_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// onTheLink is an address of this host that means something on one link only, with its zone.
func onTheLink(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		addresses, err := one.Addrs()
		if err != nil || one.Flags&net.FlagUp == 0 {
			continue
		}
		for _, address := range addresses {
			if of, is := address.(*net.IPNet); is && of.IP.To4() == nil && of.IP.IsLinkLocalUnicast() {
				return of.IP.String() + "%" + one.Name
			}
		}
	}
	t.Skip("no interface has an address of its link")
	panic("unreachable")
}

// Addresses of a link are reached by way of their zone, and have its name.
func TestZonesAreThoseOfPackageNet(t *testing.T) {
	host := onTheLink(t)
	for _, network := range []string{"tcp", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				l, err := d.listen(network, net.JoinHostPort(host, "0"))
				r.see("listen", err)
				if err != nil {
					return
				}
				defer l.Close()
				port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
				text := func(address net.Addr) string { return strings.ReplaceAll(address.String(), port, "port") }
				r.see("local", text(l.Addr()))
				_, err = d.listen(network, l.Addr().String())
				r.see("in use", err)
				conn, err := d.dial(r.t.Context(), network, l.Addr().String())
				r.see("dial", err)
				if err != nil {
					return
				}
				defer conn.Close()
				r.see("dialled", text(conn.RemoteAddr()), conn.LocalAddr().(*net.TCPAddr).Zone)
				other := r.accept(l)
				r.see("accepted", text(other.LocalAddr()), other.RemoteAddr().String() == conn.LocalAddr().String())
				other.Close()
			})
		})
	}
	for _, network := range []string{"udp", "udp6"} {
		t.Run(network, func(t *testing.T) {
			compareDoors(t, nil, func(r *recorder, d *door) {
				p, err := d.listenPacket(network, net.JoinHostPort(host, "0"))
				r.see("listen", err)
				if err != nil {
					return
				}
				defer p.Close()
				port := fmt.Sprint(p.LocalAddr().(*net.UDPAddr).Port)
				r.see("local", strings.ReplaceAll(p.LocalAddr().String(), port, "port"))
				conn, err := d.dial(r.t.Context(), network, p.LocalAddr().String())
				r.see("dial", err)
				if err != nil {
					return
				}
				defer conn.Close()
				r.see("dialled", conn.RemoteAddr().String() == p.LocalAddr().String(), conn.LocalAddr().(*net.UDPAddr).Zone)
				n, err := conn.Write([]byte("there"))
				r.see("write", n, err)
				memory := make([]byte, 10)
				n, from, err := p.ReadFrom(memory)
				r.see("read", string(memory[:n]), from.String() == conn.LocalAddr().String(), err)
				n, err = p.WriteTo([]byte("back"), from)
				r.see("write", n, err)
				n, err = conn.Read(memory)
				r.see("read", string(memory[:n]), err)
			})
		})
	}
	t.Run("no such zone", func(t *testing.T) {
		compareDoors(t, nil, func(r *recorder, d *door) {
			ip, _, _ := strings.Cut(host, "%")
			for _, zone := range []string{"%none", ""} {
				_, err := d.listen("tcp", net.JoinHostPort(ip+zone, "0"))
				r.see("listen", err)
				_, err = d.dial(r.t.Context(), "tcp", net.JoinHostPort(ip+zone, "1"))
				r.see("dial", err)
			}
		})
	})
}
