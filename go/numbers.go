package quoit

import "sync"

// numbers tell the loops of a process apart. The zero value has all from 0 on.
type numbers struct {
	mu    sync.Mutex
	taken map[int]bool
}

// take returns the lowest one below most that is free; false if there is none.
func (n *numbers) take(most int) (number int, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken == nil {
		n.taken = make(map[int]bool)
	}
	for number := range most {
		if !n.taken[number] {
			n.taken[number] = true
			return number, true
		}
	}
	return 0, false
}

func (n *numbers) give(number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, number)
}

// Number is what tells a loop, by its index, from all others of its engine in the process: as the label of its counters, where the loops
// of several groups come together. It is the lowest that is free as the loop is made, and so the index where there is one group.
func (l *Loops) Number(index int) int { return l.loops[index].inProcess() }
