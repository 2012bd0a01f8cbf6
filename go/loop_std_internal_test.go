package quoit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// A request is noted first and served then. Between the two the connection's writer may find nothing left to write: it
// must not take a request for done that is none of its own, or a paused connection, say, is never resumed.
func TestAWriterThatEndsLeavesTheRequestsOfOthers(t *testing.T) {
	for _, request := range []requests{requestAbort, requestDeadline, requestPause, requestKeepRest} {
		s := &stdConn{conn: &Conn{requests: request | requestFlush, listed: true}, writing: true}
		s.write()
		if s.writing || s.conn.requests != request {
			t.Errorf("of %07b there is left %07b, and it writes on: %v", request, s.conn.requests, s.writing)
		}
	}
}

// What a handler has consumed is settled behind its callback. By then a net.Conn may have the connection, which pauses it itself.
func TestAConnectionThatWasHandedOverIsNotSettled(t *testing.T) {
	c := &Conn{home: &stdLoop{group: &Loops{config: &config{inbound: 10}}}, sink: netSink{}, pause: true, listed: true}
	c.settle()
	if !c.pause {
		t.Error("a net.Conn that has enough receives more")
	}
	c.sink = &handlerSink{}
	c.settle()
	if c.pause {
		t.Error("a handler that has consumed everything receives nothing more")
	}
}

// told is a sink that notes what it is told of.
type told struct {
	sink // that of what no test tells
	of   []string
}

func (t *told) writable(*Conn) { t.of = append(t.of, "room") }
func (t *told) deadline(*Conn) { t.of = append(t.of, "deadline") }

// What has come up while a handler runs waits for its turn, and by then that handler may have closed the connection.
func TestOfAConnectionThatWasClosedNothingIsToldButItsEnd(t *testing.T) {
	for state, wanted := range map[connState]string{
		stateOpen: "[room deadline]", stateEnding: "[deadline]", stateClosing: "[]", stateClosed: "[]",
	} {
		at := time.Now()
		s := &stdConn{conn: &Conn{state: state, deadline: at, out: outbound{refused: true}}}
		to := &told{}
		s.tellRoom(to)
		s.tellDeadline(to, at)
		if found := fmt.Sprint(to.of); found != wanted {
			t.Errorf("in state %d: %s, not %s", state, found, wanted)
		}
	}
}

// slowPeer takes so many bytes at a time, and then the deadline has come.
type slowPeer struct {
	net.Conn
	atATime   int
	taken     int
	deadlines int
}

func (p *slowPeer) Write(bytes []byte) (int, error) {
	n := min(p.atATime, len(bytes))
	p.taken += n
	if n < len(bytes) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

func (p *slowPeer) SetWriteDeadline(time.Time) error {
	p.deadlines++
	return nil
}

// The limit of a graceful close counts from what the peer took last.
func TestACloseGoesOnWithAPeerThatTakesSomething(t *testing.T) {
	const length = 10
	loop := &stdLoop{group: &Loops{config: &config{closeLimit: time.Hour}}}
	peer := &slowPeer{atATime: 3}
	s := &stdConn{loop: loop, net: peer, conn: &Conn{state: stateClosing}}
	if err := s.writeAll(make([]byte, length)); err != nil || peer.taken != length || peer.deadlines != 4 {
		t.Errorf("%v; %d bytes were taken, with %d new limits", err, peer.taken, peer.deadlines)
	}
	peer = &slowPeer{}
	s.net = peer
	if err := s.writeAll(make([]byte, length)); !errors.Is(err, os.ErrDeadlineExceeded) || peer.deadlines != 0 {
		t.Error(err, peer.deadlines)
	}
}
