package quoit

import (
	"errors"
	"syscall"
	"testing"
)

// stingy is a memorySource that gives so many times.
type stingy struct{ times int }

func (s *stingy) take(size int) ([]byte, error) {
	if s.times == 0 {
		return nil, syscall.ENOMEM
	}
	s.times--
	return make([]byte, size), nil
}

func (*stingy) give([]byte) {}

func TestWhatFindsNoMemoryLeavesTheQueueAsItIs(t *testing.T) {
	memory := newBlocks(&stingy{times: 1}, 1<<20)
	var out outbound
	if err := appendTo(&out, memory, "hello"); err != nil {
		t.Fatal(err)
	}
	// A block above regionSize is taken from the system by itself.
	if err := appendTo(&out, memory, make([]byte, regionSize)); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
	if err := appendTo(&out, memory, ", world"); err != nil {
		t.Error(err)
	}
	if found := string(out.next(100)); found != "hello, world" {
		t.Errorf("%q", found)
	}
	out.taken(memory)
	if used, bytes := memory.used, memory.out.Load(); used != 0 || bytes != 0 {
		t.Errorf("%d blocks of %d bytes are out", used, bytes)
	}
}

// However many queue all they may, they cost no more than the budget and what each may have whatever others do.
func TestQueuesShareABudget(t *testing.T) {
	const high, connections = 256 << 10, 2000
	memory := newBlocks(heap{}, high)
	if share := memory.share(high); share != high {
		t.Errorf("one alone may queue %d bytes", share)
	}
	piece := make([]byte, leastShare)
	queues := make([]outbound, connections)
	for index := range queues {
		for queue := &queues[index]; queue.queued()+len(piece) <= memory.share(high); {
			if err := appendTo(queue, memory, piece); err != nil {
				t.Fatal(err)
			}
		}
		if queues[index].queued() == 0 {
			t.Fatalf("connection %d may queue nothing", index)
		}
	}
	if bytes := memory.out.Load(); bytes > leastBudget+connections*leastShare {
		t.Errorf("%d bytes are out", bytes)
	}
	for index := range queues {
		queues[index].drop(memory)
	}
	if share := memory.share(high); share != high {
		t.Errorf("when all is back, one may queue %d bytes", share)
	}
}
