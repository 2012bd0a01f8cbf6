//go:build linux && !cgo && !quoit_std && (amd64 || arm64)

package native

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/nocgo"
)

// Pointers are converted in the list of arguments of call and answered. As these are go:uintptrescapes, what they point to is kept
// until the call returns, and is not on a stack, which moves. The library keeps none of them for longer.

// Loop is quoit_loop. All its methods must be called on one thread.
type Loop struct {
	handle    uintptr
	scratch   text       // for what is asked on the loop's thread only
	arguments [6]uintptr // of the call under way
	sender    uintptr    // that a call has filled in
}

// Remote is quoit_remote; any thread.
type Remote struct {
	handle uintptr
	wake   [1]uintptr // the arguments of quoit_remote_wake
}

// Socket is quoit_socket.
type Socket struct{ handle uintptr }

// DatagramSocket is quoit_datagram_socket: one that no loop has yet.
type DatagramSocket struct{ handle uintptr }

// call is a call that returns an int.
//
//go:uintptrescapes
func call(function uintptr, arguments ...uintptr) int {
	result, _, _ := nocgo.Registered.Call(function, arguments...)
	return int(int32(result))
}

// answered is call that, where it fails, takes the thread's text along: the next call of this goroutine may be made on
// another thread.
//
//go:uintptrescapes
func answered(name string, text *text, function uintptr, arguments ...uintptr) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := call(function, arguments...)
	if code < 0 {
		return code, text.last(name, code)
	}
	return code, nil
}

// last is the failure of the thread's last call.
func (t *text) last(name string, code int) error {
	call(symbols.errorText, uintptr(unsafe.Pointer(t)), textSize)
	return t.failure(name, code)
}

// DefaultConfig is quoit_config_default.
func DefaultConfig() Config {
	config := Config{Size: uint32(unsafe.Sizeof(Config{}))}
	// It fails only for a size that the library does not know, which Load has ruled out.
	call(symbols.configDefault, uintptr(unsafe.Pointer(&config)))
	return config
}

// Probe is quoit_capabilities_probe: whether a loop so configured can run on io_uring, why not, and its features.
func Probe(config *Config) (usable bool, reason string, features []Capability, err error) {
	var text text
	var found uintptr
	if _, err := answered("quoit_capabilities_probe", &text, symbols.capabilitiesProbe, uintptr(unsafe.Pointer(config)),
		uintptr(unsafe.Pointer(&found))); err != nil {
		return false, "", nil, err
	}
	defer call(symbols.capabilitiesFree, found)
	call(symbols.capabilitiesReason, found, uintptr(unsafe.Pointer(&text)), textSize)
	usable, reason = call(symbols.capabilitiesUsable, found) == 1, text.String()
	feature := capability{size: uint32(unsafe.Sizeof(capability{}))}
	for index := uintptr(0); call(symbols.capabilitiesGet, found, index, uintptr(unsafe.Pointer(&feature))) == 0; index++ {
		features = append(features, Capability{
			Name:          goString(feature.name),
			About:         goString(feature.about),
			MinimumKernel: goString(feature.minimumKernel),
			Reason:        goString(feature.reason),
			Bit:           feature.bit,
			Usable:        feature.usable == 1,
		})
	}
	return usable, reason, features, nil
}

// DescribeCounters says what the counters are, in their order.
func DescribeCounters() []CounterInfo {
	var all []CounterInfo
	info := counterInfo{size: uint32(unsafe.Sizeof(counterInfo{}))}
	first := uint32(unsafe.Offsetof(counters{}.turns))
	for index := uintptr(0); call(symbols.counterDescribe, index, uintptr(unsafe.Pointer(&info))) == 0; index++ {
		place := int(info.offset-first) / 8
		if place < countersInABI {
			all = append(all, CounterInfo{
				Name: goString(info.name), About: goString(info.about), Gauge: info.kind == figureGauge, Index: place,
			})
		}
	}
	return all
}

// Bind is quoit_socket_bind. A backlog of 0 is the library's default.
func Bind(address string, flags uint32, backlog int) (*Socket, error) {
	options := bindOptions{size: uint32(unsafe.Sizeof(bindOptions{}))}
	call(symbols.bindOptionsDefault, uintptr(unsafe.Pointer(&options)))
	options.flags = flags
	if backlog != 0 {
		options.backlog = uint32(backlog)
	}
	var text text
	socket := new(Socket)
	if _, err := answered("quoit_socket_bind", &text, symbols.socketBind, uintptr(unsafe.Pointer(unsafe.StringData(address))),
		uintptr(len(address)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&socket.handle))); err != nil {
		return nil, err
	}
	return socket, nil
}

// Adopt is quoit_socket_adopt: the descriptor, which listens, is the library's from now on, even on failure.
func Adopt(descriptor int) (*Socket, error) {
	var text text
	socket := new(Socket)
	if _, err := answered("quoit_socket_adopt", &text, symbols.socketAdopt, uintptr(descriptor),
		uintptr(unsafe.Pointer(&socket.handle))); err != nil {
		return nil, err
	}
	return socket, nil
}

// Address is quoit_socket_address: where it listens, its port resolved.
func (s *Socket) Address() string {
	var text text
	call(symbols.socketAddress, s.handle, uintptr(unsafe.Pointer(&text)), textSize)
	return text.String()
}

// Close is quoit_socket_close.
func (s *Socket) Close() {
	call(symbols.socketClose, s.handle)
	s.handle = 0
}

// NewLoop is quoit_loop_create.
func NewLoop(config *Config, index int) (*Loop, error) {
	loop := new(Loop)
	if _, err := answered("quoit_loop_create", &loop.scratch, symbols.loopCreate, uintptr(unsafe.Pointer(config)), uintptr(index),
		uintptr(unsafe.Pointer(&loop.handle))); err != nil {
		return nil, err
	}
	return loop, nil
}

// Destroy is quoit_loop_destroy.
func (l *Loop) Destroy() error {
	if _, err := answered("quoit_loop_destroy", &l.scratch, symbols.loopDestroy, l.handle); err != nil {
		return err
	}
	l.handle = 0
	return nil
}

// ask is a call for the loop itself. The arguments of the others are allocated, and these calls are made for each turn or
// connection. Pointers among them are to native memory, or to the Loop.
func (l *Loop) ask(function uintptr, arguments ...uintptr) int64 {
	l.arguments[0] = l.handle
	count := 1 + copy(l.arguments[1:], arguments)
	result, _, _ := nocgo.Registered.Call(function, l.arguments[:count]...)
	runtime.KeepAlive(l)
	return int64(result)
}

// Turn is quoit_turn. Both slices must be native memory.
func (l *Loop) Turn(commands []Command, events []Event, timeoutNS int64) (int, error) {
	filled := int(int32(l.ask(symbols.turn, uintptr(unsafe.Pointer(unsafe.SliceData(commands))), uintptr(len(commands)),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeoutNS))))
	if filled < 0 {
		return 0, l.scratch.last("quoit_turn", filled) // the loop's goroutine keeps its thread
	}
	return filled, nil
}

// Descriptor is quoit_fd.
func (l *Loop) Descriptor() (int, error) {
	descriptor, err := answered("quoit_fd", &l.scratch, symbols.fd, l.handle)
	if err != nil {
		return -1, err
	}
	return descriptor, nil
}

// Park is quoit_next_deadline for an edge-triggered poller of the descriptor: 0 for a turn first, math.MaxInt64 for no
// end. Only edges after the call count.
func (l *Loop) Park(descriptor int) int64 {
	limit := l.ask(symbols.nextDeadline)
	// The library expects a level-triggered poller.
	if limit > 0 && readable(descriptor) {
		return 0
	}
	return limit
}

// readable returns whether a descriptor is readable, or cannot be asked.
func readable(descriptor int) bool {
	const pollIn = 1
	one := struct {
		descriptor      int32
		events, return_ int16
	}{int32(descriptor), pollIn, 0}
	var now syscall.Timespec
	// It does not wait, so that Go's scheduler need not know of it. There is no poll(2) on arm64.
	ready, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&one)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno != 0 || ready != 0
}

// Engine is quoit_engine.
func (l *Loop) Engine() int { return int(int32(l.ask(symbols.engine))) }

// EngineReason is quoit_engine_reason.
func (l *Loop) EngineReason() string {
	l.ask(symbols.engineReason, uintptr(unsafe.Pointer(&l.scratch)), textSize)
	return l.scratch.String()
}

// Listen is quoit_listen: accepts from the socket, which is the library's from now on. With remotes connections are
// spread over their loops.
func (l *Loop) Listen(socket *Socket, remotes []*Remote, stream StreamOptions) (ID, error) {
	options := listenOptions{size: uint32(unsafe.Sizeof(listenOptions{}))}
	call(symbols.listenOptionsDefault, uintptr(unsafe.Pointer(&options)))
	options.stream = stream
	options.tellFailures = 1
	handles := make([]uintptr, len(remotes))
	for index, remote := range remotes {
		handles[index] = remote.handle
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	if len(handles) != 0 {
		pinner.Pin(&handles[0])
		options.accept = acceptSpread
		options.remotes = unsafe.Pointer(&handles[0])
		options.remoteCount = uint32(len(handles))
	}
	var listener ID
	_, err := answered("quoit_listen", &l.scratch, symbols.listen, l.handle, socket.handle, uintptr(unsafe.Pointer(&options)),
		uintptr(unsafe.Pointer(&listener)))
	socket.handle = 0
	if err != nil {
		return 0, err
	}
	return listener, nil
}

// Addresses returns a connection's own and its peer's address as texts; empty where there is none.
func (l *Loop) Addresses(connection ID) (local, peer string) {
	return l.address(symbols.localAddress, connection), l.address(symbols.peerAddress, connection)
}

func (l *Loop) address(of uintptr, connection ID) string {
	if int32(l.ask(of, uintptr(connection), uintptr(unsafe.Pointer(&l.scratch)), textSize)) < 0 {
		return ""
	}
	return l.scratch.String()
}

// ConnectionFD is quoit_connection_fd: -1 for a connection that has gone.
func (l *Loop) ConnectionFD(connection ID) int {
	return max(-1, int(int32(l.ask(symbols.connectionFD, uintptr(connection)))))
}

// DatagramFD is quoit_datagram_fd: -1 for a socket that has gone.
func (l *Loop) DatagramFD(socket ID) int {
	return max(-1, int(int32(l.ask(symbols.datagramFD, uintptr(socket)))))
}

// Queued is quoit_queued: 0 for a connection that has gone.
func (l *Loop) Queued(connection ID) int {
	return int(max(0, l.ask(symbols.queued, uintptr(connection))))
}

// TakenByPeer is quoit_taken_by_peer: negative for a connection that has gone.
func (l *Loop) TakenByPeer(connection ID) int64 {
	return l.ask(symbols.takenByPeer, uintptr(connection))
}

// DirectSender is quoit_direct_sender; any goroutine, one at a time.
type DirectSender struct {
	handle    uintptr
	piece     iovec      // of the call under way
	arguments [3]uintptr // of that call
}

// iovec is struct iovec.
type iovec struct {
	bytes  unsafe.Pointer
	length uintptr
}

// DirectSender is quoit_loop_direct_sender; false for a connection that sends no more.
func (l *Loop) DirectSender(connection ID) (*DirectSender, bool) {
	code := int(int32(l.ask(symbols.loopDirectSender, uintptr(connection), uintptr(unsafe.Pointer(&l.sender)))))
	return &DirectSender{handle: l.sender}, code == 0
}

// TrySend is quoit_direct_sender_try_send.
func (s *DirectSender) TrySend(p []byte) int {
	// What a sender refers to is not on a stack, which moves; and its arguments are not allocated.
	s.piece = iovec{unsafe.Pointer(unsafe.SliceData(p)), uintptr(len(p))}
	s.arguments = [...]uintptr{s.handle, uintptr(unsafe.Pointer(&s.piece)), 1}
	sent, _, _ := nocgo.Registered.Call(symbols.directSenderTrySend, s.arguments[:]...)
	s.piece = iovec{}
	return max(0, int(sent))
}

// Release is quoit_direct_sender_release.
func (s *DirectSender) Release() {
	call(symbols.directSenderRelease, s.handle)
	s.handle = 0
}

// DirectDatagramSender is quoit_direct_datagram_sender; any goroutine, one at a time.
type DirectDatagramSender struct {
	handle    uintptr
	to, bytes unsafe.Pointer // of the call under way
	arguments [5]uintptr     // of that call
}

// DirectDatagramSender is quoit_loop_direct_datagram_sender; false for a socket that is being closed.
func (l *Loop) DirectDatagramSender(socket ID) (*DirectDatagramSender, bool) {
	code := int(int32(l.ask(symbols.loopDirectDatagramSender, uintptr(socket), uintptr(unsafe.Pointer(&l.sender)))))
	return &DirectDatagramSender{handle: l.sender}, code == 0
}

// TrySend is quoit_direct_datagram_sender_try_send. to is a struct sockaddr, or empty.
func (s *DirectDatagramSender) TrySend(to, p []byte) bool {
	// As for a DirectSender.
	s.to, s.bytes = unsafe.Pointer(unsafe.SliceData(to)), unsafe.Pointer(unsafe.SliceData(p))
	s.arguments = [...]uintptr{s.handle, uintptr(s.to), uintptr(len(to)), uintptr(s.bytes), uintptr(len(p))}
	sent, _, _ := nocgo.Registered.Call(symbols.directDatagramSenderTrySend, s.arguments[:]...)
	s.to, s.bytes = nil, nil
	return int32(sent) == 1
}

// Release is quoit_direct_datagram_sender_release.
func (s *DirectDatagramSender) Release() {
	call(symbols.directDatagramSenderRelease, s.handle)
	s.handle = 0
}

// Remote is quoit_loop_remote.
func (l *Loop) Remote() (*Remote, error) {
	remote := new(Remote)
	if _, err := answered("quoit_loop_remote", &l.scratch, symbols.loopRemote, l.handle,
		uintptr(unsafe.Pointer(&remote.handle))); err != nil {
		return nil, err
	}
	remote.wake[0] = remote.handle
	return remote, nil
}

// Release is quoit_remote_release.
func (r *Remote) Release() {
	call(symbols.remoteRelease, r.handle)
	*r = Remote{}
}

// Wake is quoit_remote_wake.
func (r *Remote) Wake() {
	// The arguments are not written out, and so not allocated.
	call(symbols.remoteWake, r.wake[:]...)
}

// Counters is quoit_remote_counters.
func (r *Remote) Counters() Counters {
	counters := counters{size: uint32(unsafe.Sizeof(counters{}))}
	call(symbols.remoteCounters, r.handle, uintptr(unsafe.Pointer(&counters)))
	return counters.turns
}

// DefaultDatagramOptions is quoit_datagram_options_default.
func DefaultDatagramOptions() DatagramOptions {
	options := DatagramOptions{Size: uint32(unsafe.Sizeof(DatagramOptions{}))}
	// It fails only for a size that the library does not know, which Load has ruled out.
	call(symbols.datagramOptionsDefault, uintptr(unsafe.Pointer(&options)))
	return options
}

// BindDatagram is quoit_datagram_socket_bind, with groups to join, and connected to peer unless that is empty.
func BindDatagram(address string, options DatagramOptions, groups []MulticastGroup, peer string) (*DatagramSocket, error) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	options.Groups, options.GroupCount = nil, uint32(len(groups))
	if len(groups) != 0 {
		pinner.Pin(&groups[0])
		options.Groups = unsafe.Pointer(&groups[0])
	}
	options.Peer, options.PeerLength = nil, uint32(len(peer))
	if peer != "" {
		text := []byte(peer) // the text of a constant cannot be pinned
		pinner.Pin(&text[0])
		options.Peer = unsafe.Pointer(&text[0])
	}
	var text text
	socket := new(DatagramSocket)
	if _, err := answered("quoit_datagram_socket_bind", &text, symbols.datagramSocketBind,
		uintptr(unsafe.Pointer(unsafe.StringData(address))), uintptr(len(address)), uintptr(unsafe.Pointer(&options)),
		uintptr(unsafe.Pointer(&socket.handle))); err != nil {
		return nil, err
	}
	return socket, nil
}

// Address is quoit_datagram_socket_address: where it is bound, its port resolved.
func (s *DatagramSocket) Address() string {
	var text text
	call(symbols.datagramSocketAddress, s.handle, uintptr(unsafe.Pointer(&text)), textSize)
	return text.String()
}

// Close is quoit_datagram_socket_close.
func (s *DatagramSocket) Close() {
	call(symbols.datagramSocketClose, s.handle)
	s.handle = 0
}

// OpenDatagram is quoit_open_datagram: the socket is the library's from now on.
func (l *Loop) OpenDatagram(socket *DatagramSocket) (ID, error) {
	var id ID
	_, err := answered("quoit_open_datagram", &l.scratch, symbols.openDatagram, l.handle, socket.handle, 0, uintptr(unsafe.Pointer(&id)))
	socket.handle = 0
	if err != nil {
		return 0, err
	}
	return id, nil
}

// DatagramCounters is quoit_datagram_counters_read.
func (l *Loop) DatagramCounters(socket ID) (DatagramCounters, error) {
	counters := DatagramCounters{Size: uint32(unsafe.Sizeof(DatagramCounters{}))}
	if _, err := answered("quoit_datagram_counters_read", &l.scratch, symbols.datagramCountersRead, l.handle, uintptr(socket),
		uintptr(unsafe.Pointer(&counters))); err != nil {
		return DatagramCounters{}, err
	}
	return counters, nil
}
