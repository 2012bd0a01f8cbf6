package quoit

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// smallestBlock is the size of class 0; each class is twice the one before.
	smallestBlock = 512
	// regionSize is how much memory is taken at a time for blocks up to that size.
	regionSize = 256 << 10
	// spareLarge is how many bytes of free blocks above regionSize are kept for use again.
	spareLarge = 4 << 20
	// leastBudget is the budget of a loop's connections for what is queued on them, unless their marks are high.
	leastBudget = 64 << 20
	// leastShare is what a connection may have queued however much others have.
	leastShare = 4 << 10
)

// block is memory for bytes on their way out, which the library reads during a turn.
type block struct {
	memory []byte
	length int
	class  int
	next   *block // in a list of free ones
}

func (b *block) bytes() []byte { return b.memory[:b.length] }

func (b *block) room() int { return len(b.memory) - b.length }

// blocks is a loop's memory for outgoing bytes. It lies outside of Go's heap where a library reads it, so that
// commands may point to it. Any goroutine.
type blocks struct {
	source memorySource
	budget int          // see share
	out    atomic.Int64 // bytes of blocks that are out

	mu      sync.Mutex
	free    [32]*block
	regions [][]byte // to be given back at the end
	spare   int      // bytes of free blocks above regionSize
	used    int      // blocks that are out
	closed  bool
}

// memorySource takes memory from the system and gives it back.
type memorySource interface {
	take(size int) ([]byte, error)
	give(memory []byte)
}

// newBlocks is the memory of a loop whose connections have that high-water mark. With nothing queued elsewhere, one
// connection's share is all of that.
func newBlocks(source memorySource, highWater int) *blocks {
	return &blocks{source: source, budget: max(leastBudget, 16*highWater)}
}

// share is how many bytes one connection may have queued, of highWater at most: an eighth of what is left of the budget,
// so that any number of peers that do not read cost a loop no more than that, and a little each. What a connection
// queues first, with nothing else there, need not ask: nobody is kept from being answered at all.
func (p *blocks) share(highWater int) int {
	left := p.budget - int(p.out.Load())
	return min(max(left/8, leastShare), highWater)
}

func class(size int) int {
	return bits.Len(uint(max(size, smallestBlock)-1) / smallestBlock)
}

// get returns an empty block with room for at least size bytes. It fails where the system has no memory.
func (p *blocks) get(size int) (*block, error) {
	class := class(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.free[class]
	if b == nil {
		var err error
		if b, err = p.make(class); err != nil {
			return nil, err
		}
	} else {
		p.free[class] = b.next
		b.next, b.length = nil, 0
		if len(b.memory) > regionSize {
			p.spare -= len(b.memory)
		}
	}
	p.used++
	p.out.Add(int64(len(b.memory)))
	return b, nil
}

// make cuts a region into blocks of the class and returns one, or takes a large block from the system.
func (p *blocks) make(class int) (*block, error) {
	size := smallestBlock << class
	memory, err := p.source.take(max(size, regionSize))
	if err != nil {
		return nil, err
	}
	if size > regionSize {
		return &block{memory: memory, class: class}, nil
	}
	region := memory
	p.regions = append(p.regions, region)
	headers := make([]block, regionSize/size)
	for index := range headers {
		b := &headers[index]
		b.memory, b.class = region[index*size:(index+1)*size:(index+1)*size], class
		if index > 0 {
			b.next = p.free[class]
			p.free[class] = b
		}
	}
	return &headers[0], nil
}

// put takes a block back.
func (p *blocks) put(b *block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	p.out.Add(-int64(len(b.memory)))
	if size := len(b.memory); size > regionSize {
		if p.closed || p.spare+size > spareLarge {
			p.source.give(b.memory)
			b = nil
		} else {
			p.spare += size
		}
	}
	if b != nil {
		b.next = p.free[b.class]
		p.free[b.class] = b
	}
	p.release()
}

// grow returns a block with the same bytes and room for at least size in all; b is taken back, unless it fails.
func (p *blocks) grow(b *block, size int) (*block, error) {
	larger, err := p.get(size)
	if err != nil {
		return nil, err
	}
	larger.length = copy(larger.memory, b.bytes())
	p.put(b)
	return larger, nil
}

// close gives everything back once the last block has returned.
func (p *blocks) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.release()
}

func (p *blocks) release() {
	if !p.closed || p.used > 0 {
		return
	}
	for class, b := range p.free {
		for ; b != nil; b = b.next {
			if len(b.memory) > regionSize {
				p.source.give(b.memory)
			}
		}
		p.free[class] = nil
	}
	for _, region := range p.regions {
		p.source.give(region)
	}
	p.regions, p.spare = nil, 0
}

// heap is a memorySource of Go's own memory, where no library reads it.
type heap struct{}

func (heap) take(size int) ([]byte, error) { return make([]byte, size), nil }
func (heap) give([]byte)                   {}
