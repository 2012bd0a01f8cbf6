// Package siege has the peers that try to keep others from being served, and a client that behaves beside them: the same
// for every way in which the module serves, and for the stock servers that those stand in for.
package siege

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

const (
	// patience ends a test that hangs; nothing depends on it otherwise. It is of one exchange, and not of a siege: under the
	// race detector, on a machine that has other things to do, a siege takes minutes.
	patience = time.Minute
	// mostTurns is in how many turns of the loop a request is answered. Among hundreds of peers that are all ready, of
	// which a turn takes 64, some tens pass before each has had its own, and a long response takes some more.
	mostTurns = 2000
	// requests is how many of the client that behaves are answered beside each kind of peers.
	requests = 4
	// stalled readers use the memory for sends up if each is sent as much at first as Marks allows.
	stalled = 80
)

// Marks has a loop send more at once than by default. So fewer readers are enough, and the kernel, which keeps some
// megabytes for each, need not have much memory for them.
func Marks() quoit.Option { return quoit.WithWaterMarks(1<<20, 64<<10) }

// Target is a server that is besieged.
type Target struct {
	Address net.Addr
	Loops   *quoit.Loops // those of one loop that serve; nil for a stock server
}

// figure is the value of a counter; none is counted of stock servers.
func (target Target) figure(name string) uint64 {
	if target.Loops == nil {
		return 0
	}
	return target.Loops.Counters()[0].Get(name)
}

// waitUntilSent waits until nothing is sent any more, for what that is worth without a look at the peers.
func (target Target) waitUntilSent() {
	for before, now := uint64(0), uint64(1); before != now; {
		before = target.figure("sent_bytes")
		time.Sleep(50 * time.Millisecond)
		now = target.figure("sent_bytes")
	}
}

// kind is what all peers of one siege do.
type kind struct {
	name  string
	count int
	// begin is done by each before the client that behaves comes; then it goes on, until its connection is closed.
	begin func(t *testing.T, peer net.Conn)
	// stops says that nothing more is sent to them after a while, which is waited for.
	stops bool
	goOn  func(peer net.Conn)
}

// HTTP besieges a server that serves what Serve does.
func HTTP(t *testing.T, target Target) {
	small, endless := []byte(request(SmallPath)), []byte(request(EndlessPath))
	many := make([]byte, 0, 100*len(small))
	for range 100 {
		many = append(many, small...)
	}
	asks := func(t *testing.T, peer net.Conn) {
		if _, err := peer.Write(endless); err != nil {
			t.Fatal(err)
		}
		// Its response has begun.
		if _, err := io.ReadFull(peer, make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []kind{
		{name: "readers that stop", count: stalled, begin: asks, stops: true},
		{name: "senders that do not read", count: 4, goOn: func(peer net.Conn) { writeOn(peer, many) }},
		{name: "fast readers", count: 4, begin: asks, goOn: discard},
		{name: "a flood", count: 3, goOn: func(peer net.Conn) {
			go discard(peer)
			writeOn(peer, many)
		}},
		{name: "beginnings", count: 100, begin: func(t *testing.T, peer net.Conn) {
			if _, err := peer.Write(small[:len(small)-3]); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		besiege(t, target, kind, get)
	}
}

// Echo besieges a server that sends back what it receives.
func Echo(t *testing.T, target Target) {
	piece := make([]byte, 64<<10)
	for _, kind := range []kind{
		{name: "senders that do not read", count: 100, goOn: func(peer net.Conn) { writeOn(peer, piece) }},
		{name: "a flood", count: 3, goOn: func(peer net.Conn) {
			go discard(peer)
			writeOn(peer, piece)
		}},
	} {
		besiege(t, target, kind, echo)
	}
}

// besiege has the client that behaves make its requests beside the peers, and then sees that nothing of them is left.
func besiege(t *testing.T, target Target, kind kind, exchange func(t *testing.T, client net.Conn, number int)) {
	t.Run(kind.name, func(t *testing.T) {
		if kind.goOn != nil && testing.Short() {
			t.Skip("peers that never stop take much processor time")
		}
		client := dial(t, target, 0)
		patiently := func(connection net.Conn, number int) {
			_ = connection.SetDeadline(time.Now().Add(patience))
			exchange(t, connection, number)
		}
		patiently(client, 0)
		peers := make([]net.Conn, kind.count)
		for index := range peers {
			// So that little is on the way, and what matters is what the server holds.
			peers[index] = dial(t, target, 4096)
		}
		var busy sync.WaitGroup
		for _, peer := range peers {
			if kind.begin != nil {
				_ = peer.SetDeadline(time.Now().Add(patience))
				kind.begin(t, peer)
				_ = peer.SetDeadline(time.Time{})
			}
			if kind.goOn != nil {
				busy.Go(func() { kind.goOn(peer) })
			}
		}
		if kind.stops {
			target.waitUntilSent()
		}
		for number := range requests {
			before := target.figure("turns")
			patiently(client, number)
			if turns := target.figure("turns") - before; turns > mostTurns {
				t.Errorf("a request took %d turns", turns)
			}
			// Others that come later are served too.
			late := dial(t, target, 0)
			patiently(late, number)
			_ = late.Close()
		}
		for _, peer := range peers {
			_ = peer.(*net.TCPConn).SetLinger(0) // a reset, whatever is on the way
			_ = peer.Close()
		}
		busy.Wait()
		_ = client.Close()
		for _, name := range []string{"connections", "pool_leased", "leases_copied_now", "queued_bytes", "send_chunks_used"} {
			for until := time.Now().Add(patience); target.figure(name) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("%s is %d when all have gone", name, target.figure(name))
				}
			}
		}
	})
}

func dial(t *testing.T, target Target, receiveBuffer int) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: receivesInto(receiveBuffer)}
	connection, err := dialer.DialContext(t.Context(), "tcp", target.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func writeOn(peer net.Conn, piece []byte) {
	for {
		if _, err := peer.Write(piece); err != nil {
			return
		}
	}
}

func discard(peer net.Conn) { _, _ = io.Copy(io.Discard, peer) }

// get makes a request, every third one of a long response, whose every byte must be right.
func get(t *testing.T, client net.Conn, number int) {
	t.Helper()
	path, want := SmallPath, io.Reader(NewBody(smallSize))
	if number%3 == 2 {
		path, want = LargePath, NewBody(LargeSize)
	}
	if _, err := io.WriteString(client, request(path)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, response.Body, want)
}

// echo sends a message and waits for it, every second one longer than a piece that is received at once.
func echo(t *testing.T, client net.Conn, number int) {
	t.Helper()
	size := []int64{17, 30_000}[number%2]
	if _, err := io.Copy(client, NewBody(size)); err != nil {
		t.Fatal(err)
	}
	compare(t, io.LimitReader(client, size), NewBody(size))
}

func compare(t *testing.T, found, want io.Reader) {
	t.Helper()
	expected, _ := io.ReadAll(want)
	came, err := io.ReadAll(found)
	if err != nil || string(came) != string(expected) {
		t.Fatalf("%d of %d bytes came, or others: %v", len(came), len(expected), err)
	}
}

func request(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }
