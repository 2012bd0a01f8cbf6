package doors

import (
	"testing"

	"github.com/quoit-io/quoit/go/internal/oracle"
)

// What Netty's and Kestrel's own codecs make of requests that are cut anywhere, or hostile, depends on no transport. Kestrel's
// response to a client that has ended its direction comes or does not, with an end or a reset behind it, on sockets too: it races
// with the end. So the client ends when nothing comes any more.
func TestHTTPIsReadTheSameOnTheDoorsOfNettyAndKestrel(t *testing.T) {
	exchanges := append(oracle.EachCut(), oracle.Hostile(29, 1000)...)
	for index := range exchanges {
		exchanges[index].EndsLate = true
	}
	for _, p := range peers {
		for _, ours := range p.ours {
			t.Run(p.name+" on "+ours, func(t *testing.T) {
				oracle.HTTPWithRaces(t, p.start(t, "http", p.stock), p.start(t, "http", ours), exchanges, 20)
			})
		}
	}
}
