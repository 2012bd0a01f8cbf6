package quoit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	quoit "github.com/quoit-io/quoit/go"
)

// detaches is a Handler that makes a net.Conn of each connection, and of those that it is told of only when the peer has
// ended.
type detaches struct {
	handler
	to chan *quoit.NetConn
}

func (d *detaches) OnEndOfStream(c *quoit.Conn) { d.take(c) }

func (d *detaches) take(c *quoit.Conn) {
	n, err := c.Detach()
	if err != nil {
		panic(err)
	}
	d.to <- n
}

// fill writes until nothing more is taken, and has been waited for in vain.
func fill(t *testing.T, write func() error) {
	t.Helper()
	var err error
	for err == nil {
		err = write()
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// The end had come before the net.Conn was made, and comes no second time.
func TestANetConnMadeAtTheEndOfStreamReadsTheEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		d := &detaches{to: make(chan *quoit.NetConn, 1)}
		d.data = func(*quoit.Conn) {} // is left for the net.Conn
		server := start(t, d, engine)
		client := dial(t, server.Addr()).(*net.TCPConn)
		io.WriteString(client, "all there is")
		client.CloseWrite()
		n := receive(t, d.to)
		n.SetDeadline(time.Now().Add(patience))
		if all, err := io.ReadAll(n); string(all) != "all there is" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
		io.WriteString(n, "and this back")
		n.Close()
		if all, err := io.ReadAll(client); string(all) != "and this back" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// What the peer does not take is dropped when the time is over, and the connection with it.
func TestACloseEndsWhoseBytesNobodyTakes(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		d := &detaches{to: make(chan *quoit.NetConn, 1)}
		d.open = d.take
		closeLimit := quoit.WithCloseLimit(50 * time.Millisecond)
		server := start(t, d, engine, closeLimit)
		dial(t, server.Addr())
		n := receive(t, d.to)
		n.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		fill(t, func() error {
			_, err := n.Write(make([]byte, 1<<20))
			return err
		})
		n.Close()
		shutDown(t, server) // waits for the connection
	})
}

// Only the loop could end the wait.
func TestAListenerIsClosedOnItsLoop(t *testing.T) {
	onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1))
		if err != nil {
			t.Fatal(err)
		}
		defer loops.Close()
		listener := listen(t, quoit.OnLoops(loops))
		server := start(t, &handler{data: func(c *quoit.Conn) {
			listener.Close()
			c.WriteTo(c)
		}}, quoit.OnLoops(loops))
		roundTrip(t, dial(t, server.Addr()), "closed?")
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
