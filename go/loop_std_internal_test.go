package quoit

import "testing"

// A request is noted first and served then. Between the two the connection's writer may find nothing left to write: it
// must not take a request for done that is none of its own, or a paused connection, say, is never resumed.
func TestAWriterThatEndsLeavesTheRequestsOfOthers(t *testing.T) {
	for _, request := range []requests{requestAbort, requestDeadline, requestPause, requestSettle} {
		s := &stdConn{conn: &Conn{requests: request | requestFlush, listed: true}, writing: true}
		s.write()
		if s.writing || s.conn.requests != request {
			t.Errorf("of %07b there is left %07b, and it writes on: %v", request, s.conn.requests, s.writing)
		}
	}
}
