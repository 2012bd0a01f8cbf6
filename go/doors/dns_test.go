package doors

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// A server of names answers over datagrams, and over a stream what does not fit into one.
func TestADNSServerAnswers(t *testing.T) {
	handler := dns.HandlerFunc(func(to dns.ResponseWriter, request *dns.Msg) {
		response := new(dns.Msg).SetReply(request)
		name := request.Question[0].Name
		text := []string{name}
		if strings.HasPrefix(name, "long") {
			for range 20 {
				text = append(text, strings.Repeat("x", 200))
			}
		}
		response.Answer = []dns.RR{&dns.TXT{
			Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: text,
		}}
		if _, datagram := to.RemoteAddr().(*net.UDPAddr); datagram {
			response.Truncate(dns.MinMsgSize)
		}
		to.WriteMsg(response)
	})
	onEachWay(t, func(t *testing.T, w way) {
		p, l := w.packetConn(t), w.listener(t)
		servers := []*dns.Server{{PacketConn: p, Handler: handler}, {Listener: l, Handler: handler}}
		var serving sync.WaitGroup
		for _, server := range servers {
			started := make(chan struct{})
			server.NotifyStartedFunc = func() { close(started) }
			serving.Go(func() {
				if err := server.ActivateAndServe(); err != nil {
					t.Error(err)
				}
			})
			<-started
		}
		var clients sync.WaitGroup
		for number := range 8 {
			clients.Go(func() {
				for question := range 50 {
					name := fmt.Sprintf("question%d.of%d.test.", question, number)
					if question%10 == 0 {
						name = "long." + name
					}
					request := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
					response, _, err := (&dns.Client{Net: "udp", Timeout: patience}).Exchange(request, p.LocalAddr().String())
					if err == nil && response.Truncated {
						response, _, err = (&dns.Client{Net: "tcp", Timeout: patience}).Exchange(request, l.Addr().String())
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if len(response.Answer) != 1 || response.Answer[0].(*dns.TXT).Txt[0] != name {
						t.Errorf("%s: %v", name, response)
					}
				}
			})
		}
		clients.Wait()
		for _, server := range servers {
			if err := server.ShutdownContext(inPatience(t)); err != nil {
				t.Error(err)
			}
		}
		serving.Wait()
	})
}
