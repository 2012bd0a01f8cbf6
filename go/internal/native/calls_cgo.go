//go:build linux && cgo && !quoit_std && (amd64 || arm64)

package native

/*
#cgo noescape shim_turn
#cgo nocallback shim_turn
#cgo noescape shim_addresses
#cgo nocallback shim_addresses
#cgo noescape shim_error_text
#cgo nocallback shim_error_text
#cgo noescape shim_park
#cgo nocallback shim_park
#cgo noescape shim_remote_wake
#cgo nocallback shim_remote_wake
#cgo noescape shim_direct_send
#cgo nocallback shim_direct_send
#cgo noescape shim_direct_datagram_send
#cgo nocallback shim_direct_datagram_send
#cgo noescape shim_remote_counters
#cgo nocallback shim_remote_counters
#include "shim.h"
*/
import "C"

import "unsafe"

// Loop is quoit_loop. All its methods must be called on one thread.
type Loop struct {
	handle  *C.quoit_loop
	scratch text // for what is asked on the loop's thread only
	other   text
}

// Remote is quoit_remote; any thread.
type Remote struct{ handle *C.quoit_remote }

// Socket is quoit_socket.
type Socket struct{ handle *C.quoit_socket }

// DefaultConfig is quoit_config_default.
func DefaultConfig() Config {
	var config Config
	// It fails only for a size that the library does not know, which Load has ruled out.
	C.shim_config_default((*C.quoit_config)(unsafe.Pointer(&config)))
	return config
}

// Probe is quoit_capabilities_probe: whether a loop so configured can run on io_uring, why not, and its features.
func Probe(config *Config) (usable bool, reason string, features []Capability, err error) {
	var text text
	var found *C.quoit_capabilities
	if code := C.shim_capabilities_probe((*C.quoit_config)(unsafe.Pointer(config)), &found, text.pointer()); code < 0 {
		return false, "", nil, text.failure("quoit_capabilities_probe", int(code))
	}
	defer C.shim_capabilities_free(found)
	C.shim_capabilities_reason(found, text.pointer(), C.SHIM_TEXT)
	usable, reason = C.shim_capabilities_usable(found) == 1, text.String()
	var feature C.quoit_capability
	for index := C.uint32_t(0); C.shim_capabilities_get(found, index, &feature) == 0; index++ {
		features = append(features, Capability{
			Name:          C.GoString(feature.name),
			About:         C.GoString(feature.about),
			MinimumKernel: C.GoString(feature.minimum_kernel),
			Reason:        C.GoString(feature.reason),
			Bit:           uint64(feature.bit),
			Usable:        feature.usable == 1,
		})
	}
	return usable, reason, features, nil
}

// DescribeCounters says what the counters are, in their order.
func DescribeCounters() []CounterInfo {
	var all []CounterInfo
	var info C.quoit_counter_info
	first := C.uint32_t(unsafe.Offsetof(C.quoit_counters{}.turns))
	for index := C.uint32_t(0); C.shim_counter_describe(index, &info) == 0; index++ {
		place := int(info.offset-first) / 8
		if place < countersInABI {
			all = append(all, CounterInfo{
				Name: C.GoString(info.name), About: C.GoString(info.about),
				Gauge: info.kind == C.QUOIT_FIGURE_GAUGE, Index: place,
			})
		}
	}
	return all
}

// Bind is quoit_socket_bind. A backlog of 0 is the library's default.
func Bind(address string, flags uint32, backlog int) (*Socket, error) {
	var text text
	socket := new(Socket)
	data := (*C.char)(unsafe.Pointer(unsafe.StringData(address)))
	code := C.shim_socket_bind(data, C.size_t(len(address)), C.uint32_t(flags), C.uint32_t(backlog), &socket.handle,
		text.pointer())
	if code < 0 {
		return nil, text.failure("quoit_socket_bind", int(code))
	}
	return socket, nil
}

// Adopt is quoit_socket_adopt: the descriptor, which listens, is the library's from now on, even on failure.
func Adopt(descriptor int) (*Socket, error) {
	var text text
	socket := new(Socket)
	if code := C.shim_socket_adopt(C.int(descriptor), &socket.handle, text.pointer()); code < 0 {
		return nil, text.failure("quoit_socket_adopt", int(code))
	}
	return socket, nil
}

// Address is quoit_socket_address: where it listens, its port resolved.
func (s *Socket) Address() string {
	var text text
	C.shim_socket_address(s.handle, text.pointer(), C.SHIM_TEXT)
	return text.String()
}

// Close is quoit_socket_close.
func (s *Socket) Close() {
	C.shim_socket_close(s.handle)
	s.handle = nil
}

// NewLoop is quoit_loop_create.
func NewLoop(config *Config, index int) (*Loop, error) {
	loop := new(Loop)
	code := C.shim_loop_create((*C.quoit_config)(unsafe.Pointer(config)), C.uint32_t(index), &loop.handle,
		loop.scratch.pointer())
	if code < 0 {
		return nil, loop.scratch.failure("quoit_loop_create", int(code))
	}
	return loop, nil
}

// Destroy is quoit_loop_destroy.
func (l *Loop) Destroy() error {
	if code := C.shim_loop_destroy(l.handle, l.scratch.pointer()); code < 0 {
		return l.scratch.failure("quoit_loop_destroy", int(code))
	}
	l.handle = nil
	return nil
}

// Turn is quoit_turn. Both slices must be native memory.
func (l *Loop) Turn(commands []Command, events []Event, timeoutNS int64) (int, error) {
	filled := C.shim_turn(l.handle, (*C.quoit_command)(unsafe.Pointer(unsafe.SliceData(commands))),
		C.size_t(len(commands)), (*C.quoit_event)(unsafe.Pointer(unsafe.SliceData(events))), C.size_t(len(events)),
		C.int64_t(timeoutNS))
	if filled < 0 {
		C.shim_error_text(l.scratch.pointer(), C.SHIM_TEXT)
		return 0, l.scratch.failure("quoit_turn", int(filled))
	}
	return int(filled), nil
}

// Descriptor is quoit_fd.
func (l *Loop) Descriptor() (int, error) {
	descriptor := C.shim_fd(l.handle, l.scratch.pointer())
	if descriptor < 0 {
		return -1, l.scratch.failure("quoit_fd", int(descriptor))
	}
	return int(descriptor), nil
}

// Park is quoit_next_deadline for an edge-triggered poller of the descriptor: 0 for a turn first, math.MaxInt64 for no
// end. Only edges after the call count.
func (l *Loop) Park(descriptor int) int64 {
	return int64(C.shim_park(l.handle, C.int(descriptor)))
}

// Engine is quoit_engine.
func (l *Loop) Engine() int { return int(C.shim_engine(l.handle)) }

// EngineReason is quoit_engine_reason.
func (l *Loop) EngineReason() string {
	C.shim_engine_reason(l.handle, l.scratch.pointer(), C.SHIM_TEXT)
	return l.scratch.String()
}

// Listen is quoit_listen: accepts from the socket, which is the library's from now on. With remotes connections are
// spread over their loops.
func (l *Loop) Listen(socket *Socket, remotes []*Remote, stream StreamOptions) (ID, error) {
	handles := make([]*C.quoit_remote, len(remotes))
	for index, remote := range remotes {
		handles[index] = remote.handle
	}
	var listener C.uint64_t
	code := C.shim_listen(l.handle, socket.handle, unsafe.SliceData(handles), C.uint32_t(len(handles)),
		(*C.quoit_stream_options)(unsafe.Pointer(&stream)), &listener, l.scratch.pointer())
	socket.handle = nil
	if code < 0 {
		return 0, l.scratch.failure("quoit_listen", int(code))
	}
	return ID(listener), nil
}

// Addresses returns a connection's own and its peer's address as texts; empty where there is none.
func (l *Loop) Addresses(connection ID) (local, peer string) {
	C.shim_addresses(l.handle, C.uint64_t(connection), l.scratch.pointer(), l.other.pointer(), C.SHIM_TEXT)
	return l.scratch.String(), l.other.String()
}

// ConnectionFD is quoit_connection_fd: -1 for a connection that has gone.
func (l *Loop) ConnectionFD(connection ID) int {
	return max(-1, int(C.shim_connection_fd(l.handle, C.uint64_t(connection))))
}

// DatagramFD is quoit_datagram_fd: -1 for a socket that has gone.
func (l *Loop) DatagramFD(socket ID) int {
	return max(-1, int(C.shim_datagram_fd(l.handle, C.uint64_t(socket))))
}

// Queued is quoit_queued: 0 for a connection that has gone.
func (l *Loop) Queued(connection ID) int {
	return int(max(0, C.shim_queued(l.handle, C.uint64_t(connection))))
}

// TakenByPeer is quoit_taken_by_peer: negative for a connection that has gone.
func (l *Loop) TakenByPeer(connection ID) int64 {
	return int64(C.shim_taken_by_peer(l.handle, C.uint64_t(connection)))
}

// DirectSender is quoit_direct_sender; any goroutine, one at a time.
type DirectSender struct{ handle *C.quoit_direct_sender }

// DirectSender is quoit_loop_direct_sender; false for a connection that sends no more.
func (l *Loop) DirectSender(connection ID) (*DirectSender, bool) {
	sender := new(DirectSender)
	return sender, C.shim_direct_sender(l.handle, C.uint64_t(connection), &sender.handle) == 0
}

// TrySend is quoit_direct_sender_try_send.
func (s *DirectSender) TrySend(p []byte) int {
	// As a slice, of which cgo looks at no more than its bytes: a pointer stands for all that was allocated with them, of which
	// other fields of a structure may be pointers.
	return max(0, int(C.shim_direct_send(s.handle, unsafe.Pointer(unsafe.SliceData(p[:])), C.size_t(len(p)))))
}

// Release is quoit_direct_sender_release.
func (s *DirectSender) Release() {
	C.shim_direct_sender_release(s.handle)
	s.handle = nil
}

// DirectDatagramSender is quoit_direct_datagram_sender; any goroutine, one at a time.
type DirectDatagramSender struct {
	handle *C.quoit_direct_datagram_sender
}

// DirectDatagramSender is quoit_loop_direct_datagram_sender; false for a socket that is being closed.
func (l *Loop) DirectDatagramSender(socket ID) (*DirectDatagramSender, bool) {
	sender := new(DirectDatagramSender)
	return sender, C.shim_direct_datagram_sender(l.handle, C.uint64_t(socket), &sender.handle) == 0
}

// TrySend is quoit_direct_datagram_sender_try_send. to is a struct sockaddr, or empty.
func (s *DirectDatagramSender) TrySend(to, p []byte) bool {
	// As slices, as in the other.
	return C.shim_direct_datagram_send(s.handle, unsafe.Pointer(unsafe.SliceData(to[:])), C.size_t(len(to)),
		unsafe.Pointer(unsafe.SliceData(p[:])), C.size_t(len(p))) == 1
}

// Release is quoit_direct_datagram_sender_release.
func (s *DirectDatagramSender) Release() {
	C.shim_direct_datagram_sender_release(s.handle)
	s.handle = nil
}

// Remote is quoit_loop_remote.
func (l *Loop) Remote() (*Remote, error) {
	remote := new(Remote)
	if code := C.shim_loop_remote(l.handle, &remote.handle, l.scratch.pointer()); code < 0 {
		return nil, l.scratch.failure("quoit_loop_remote", int(code))
	}
	return remote, nil
}

// Release is quoit_remote_release.
func (r *Remote) Release() {
	C.shim_remote_release(r.handle)
	r.handle = nil
}

// Wake is quoit_remote_wake.
func (r *Remote) Wake() { C.shim_remote_wake(r.handle) }

// Counters is quoit_remote_counters.
func (r *Remote) Counters() Counters {
	var counters C.quoit_counters
	C.shim_remote_counters(r.handle, &counters)
	return *(*Counters)(unsafe.Pointer(&counters.turns))
}

// DatagramSocket is quoit_datagram_socket: one that no loop has yet.
type DatagramSocket struct{ handle *C.quoit_datagram_socket }

// DefaultDatagramOptions is quoit_datagram_options_default.
func DefaultDatagramOptions() DatagramOptions {
	var options DatagramOptions
	// It fails only for a size that the library does not know, which Load has ruled out.
	C.shim_datagram_options_default((*C.quoit_datagram_options)(unsafe.Pointer(&options)))
	return options
}

// BindDatagram is quoit_datagram_socket_bind, with groups to join, and connected to peer unless that is empty.
func BindDatagram(address string, options DatagramOptions, groups []MulticastGroup, peer string) (*DatagramSocket, error) {
	var text text
	options.GroupCount, options.PeerLength = uint32(len(groups)), uint32(len(peer))
	socket := new(DatagramSocket)
	code := C.shim_datagram_bind((*C.char)(unsafe.Pointer(unsafe.StringData(address))), C.size_t(len(address)),
		(*C.quoit_datagram_options)(unsafe.Pointer(&options)),
		(*C.quoit_multicast_group)(unsafe.Pointer(unsafe.SliceData(groups))),
		(*C.char)(unsafe.Pointer(unsafe.StringData(peer))), &socket.handle, text.pointer())
	if code < 0 {
		return nil, text.failure("quoit_datagram_socket_bind", int(code))
	}
	return socket, nil
}

// Address is quoit_datagram_socket_address: where it is bound, its port resolved.
func (s *DatagramSocket) Address() string {
	var text text
	C.shim_datagram_socket_address(s.handle, text.pointer(), C.SHIM_TEXT)
	return text.String()
}

// Close is quoit_datagram_socket_close.
func (s *DatagramSocket) Close() {
	C.shim_datagram_socket_close(s.handle)
	s.handle = nil
}

// OpenDatagram is quoit_open_datagram: the socket is the library's from now on.
func (l *Loop) OpenDatagram(socket *DatagramSocket) (ID, error) {
	var id C.uint64_t
	code := C.shim_open_datagram(l.handle, socket.handle, &id, l.scratch.pointer())
	socket.handle = nil
	if code < 0 {
		return 0, l.scratch.failure("quoit_open_datagram", int(code))
	}
	return ID(id), nil
}

// DatagramCounters is quoit_datagram_counters_read.
func (l *Loop) DatagramCounters(socket ID) (DatagramCounters, error) {
	var counters DatagramCounters
	code := C.shim_datagram_counters(l.handle, C.uint64_t(socket), (*C.quoit_datagram_counters)(unsafe.Pointer(&counters)),
		l.scratch.pointer())
	if code < 0 {
		return DatagramCounters{}, l.scratch.failure("quoit_datagram_counters_read", int(code))
	}
	return counters, nil
}
