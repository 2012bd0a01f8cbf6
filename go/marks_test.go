package quoit_test

import (
	"io"
	"strings"
	"testing"

	quoit "github.com/quoit-io/quoit/go"
)

// However near the low mark is to the high one, what is written leaves in few sends.
func TestMarksThatAreNearToEachOther(t *testing.T) {
	const size = 64 << 10
	for _, marks := range [][2]int{{2 * size, 2*size - 1}, {2 * size, 0}, {2, 1}} {
		onLibraryEngines(t, func(t *testing.T, engine quoit.Option) {
			refused := 0
			answer := make([]byte, size)
			write := func(c *quoit.Conn) {
				for left := answer; len(left) > 0; left = left[min(marks[0], len(left)):] {
					if _, err := c.Write(left[:min(marks[0], len(left))]); err != nil {
						refused++
						return
					}
				}
			}
			server := start(t, &handler{data: write}, engine, quoit.WithLoops(1), quoit.WithWaterMarks(marks[0], marks[1]))
			connection := dial(t, server.Addr())
			if _, err := io.WriteString(connection, "x"); err != nil {
				t.Fatal(err)
			}
			if marks[0] < size {
				// Of so little room not everything is taken at once, but what is taken comes.
				if _, err := io.ReadFull(connection, make([]byte, 2)); err != nil {
					t.Fatal(err)
				}
				return
			}
			if _, err := io.ReadFull(connection, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			for _, counter := range server.Loops().Counters()[0] {
				if counter.Name == "sends" && counter.Value > 64 {
					t.Errorf("marks of %d: %d sends", marks, counter.Value)
				}
			}
		})
	}
}

// gathering is a handler that waits for so many bytes.
type gathering struct {
	handler
	most int
}

func (g *gathering) Gathers() int { return g.most }

// A handler that waits for more than its connections may keep would wait for ever. That is said when it starts.
func TestAHandlerThatGathersMoreThanTheInboundLimit(t *testing.T) {
	onEngines(t, func(t *testing.T, engine quoit.Option) {
		const limit = 1000
		loops, err := quoit.NewLoops(engine, quiet(), quoit.WithLoops(1), quoit.WithInboundLimit(limit))
		if err != nil {
			t.Fatal(err)
		}
		defer loops.Close()
		for _, options := range [][]quoit.Option{{engine, quoit.WithInboundLimit(limit)}, {quoit.OnLoops(loops)}} {
			server, err := quoit.Start("127.0.0.1:0", &gathering{most: limit + 1}, append(options, quiet())...)
			if err == nil {
				shutDown(t, server)
				t.Fatal("it has started")
			}
			if !strings.Contains(err.Error(), "WithInboundLimit(1000)") {
				t.Error(err)
			}
			whole := &gathering{most: limit}
			whole.data = func(c *quoit.Conn) {
				if c.Buffered() == limit {
					c.Discard(limit)
					_, _ = c.WriteString("whole")
				}
			}
			server, err = quoit.Start("127.0.0.1:0", whole, append(options, quiet())...)
			if err != nil {
				t.Fatal(err)
			}
			connection := dial(t, server.Addr())
			for range 2 {
				if _, err := connection.Write(make([]byte, limit/2)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.ReadFull(connection, make([]byte, len("whole"))); err != nil {
				t.Error(err)
			}
			connection.Close()
			shutDown(t, server)
		}
	})
}
