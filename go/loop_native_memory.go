//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import "github.com/quoit-io/quoit/go/internal/native"

// sendMemory is what a loop knows of the library's memory for sends. While no more than its last quarter is left, the
// library takes one chunk to begin with for a connection, and refuses more; so sends are split then. Otherwise a few
// hundred peers that do not read would have others wait until they are closed.
type sendMemory struct {
	chunk int // bytes of one
	all   int // chunks that there are
	large int // chunks of the largest send
	short bool
}

func newSendMemory(config *native.Config) sendMemory {
	chunk := int(config.SendChunkSize)
	return sendMemory{
		chunk: chunk, all: int(config.SendChunks), large: (int(config.HighWater) + chunk - 1) / chunk,
	}
}

// most is how many bytes of one connection, of so many at most, to give the library at once.
func (m *sendMemory) most(highest int) int {
	if m.short {
		return min(highest, m.chunk)
	}
	return highest
}

// look asks whether memory is short.
func (m *sendMemory) look(remote *native.Remote) {
	used := int(remote.Counters()[sendChunksUsed()])
	m.short = m.all-used-m.all/4 < m.large
}

// splits is whether a send of so many bytes, which the library has refused, is to be made in parts.
func (m *sendMemory) splits(length int, remote *native.Remote) bool {
	if length <= m.chunk {
		return false
	}
	m.look(remote)
	return m.short
}
