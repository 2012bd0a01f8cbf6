package native

import "unsafe"

// ID names a connection or a listener; never 0.
type ID = uint64

// Command is quoit_command. Its memory must be native, or hold no pointer to Go's memory.
type Command struct {
	Kind       uint16
	Flags      uint16
	Descriptor int32
	Target     ID
	Token      uint64
	Data       unsafe.Pointer
	Length     uint32
	_          uint32
	Offset     uint64
	Lease      uint64
	TimeNS     int64
}

// Event is quoit_event.
type Event struct {
	Kind       uint16
	Reason     uint16
	Error      int32
	Descriptor int32
	Length     uint32
	Connection ID
	Listener   ID
	Token      uint64
	Data       unsafe.Pointer
	Lease      uint64
	_          uint64
}

// StreamOptions is quoit_stream_options.
type StreamOptions struct {
	NoDelay            uint32
	ReceiveBuffer      uint32
	SendBuffer         uint32
	KeepaliveIdleS     uint32
	KeepaliveIntervalS uint32
	KeepaliveProbes    uint32
	_                  [2]uint32
}

// Config is quoit_config. Start from DefaultConfig.
type Config struct {
	Size                 uint32
	Engine               uint32
	Without              uint64
	Connections          uint32
	Listeners            uint32
	Timers               uint32
	ReceiveSlots         uint32
	ReceiveSlotSize      uint32
	LeasesPerConnection  uint32
	CloseAtLeaseLimit    uint32
	HighWater            uint32
	LowWater             uint32
	SendPieces           uint32
	SendChunkSize        uint32
	SendChunks           uint32
	ZeroCopyThreshold    uint32
	SubmissionQueue      uint32
	CompletionQueue      uint32
	BufferRing           uint32
	RegisterPool         uint32
	CompletionsPerTurn   uint32
	ReceivesPerTurn      uint32
	Inbox                uint32
	KernelPollNS         int64
	ConnectTimeoutNS     int64
	CloseDeadlineNS      int64
	RingMemoryPatienceNS int64
	DatagramSockets      uint32
	Wait                 uint32
	SpinNS               int64
	Pollable             uint32
	Reserved             uint32
	StallLimitNS         int64
}

// ConnectOptions is quoit_connect_options: Command.Data of CommandConnect, in native memory.
type ConnectOptions struct {
	Size          uint32
	AddressLength uint32
	Address       unsafe.Pointer
	Local         unsafe.Pointer
	LocalLength   uint32
	_             uint32
	TimeoutNS     int64
	Stream        StreamOptions
}

// MulticastGroup is quoit_multicast_group: Command.Data of CommandJoinMulticast and CommandLeaveMulticast, in native memory.
type MulticastGroup struct {
	Address       [16]byte
	AddressLength uint32
	Interface     uint32
}

// DatagramOptions is quoit_datagram_options. Start from DefaultDatagramOptions; BindDatagram sets the pointers.
type DatagramOptions struct {
	Size          uint32
	Flags         uint32
	MaxDatagram   uint32
	Slots         uint32
	GRO           uint32
	HighWater     uint32
	LowWater      uint32
	QueuedSends   uint32
	ReceiveBuffer uint32
	SendBuffer    uint32
	MulticastLoop uint32
	MulticastHops uint32
	Groups        unsafe.Pointer
	GroupCount    uint32
	PeerLength    uint32
	Peer          unsafe.Pointer
}

// Datagrams is quoit_datagrams: Event.Data of EventDatagrams, in native memory, readable until the lease is returned.
type Datagrams struct {
	Size        uint32
	Flags       uint32
	Data        unsafe.Pointer
	Length      uint32
	Count       uint32
	SegmentSize uint32
	PeerLength  uint32
	Peer        unsafe.Pointer
	TimestampNS int64
	Interface   uint32
	LocalLength uint8
	ECN         uint8
	_           uint16
	Local       [16]byte
}

// DatagramSend is quoit_datagram_send: an element of Command.Data of CommandSendDatagrams, in native memory.
type DatagramSend struct {
	Data         unsafe.Pointer
	Length       uint32
	Flags        uint16
	SegmentSize  uint16
	Token        uint64
	Lease        uint64
	To           unsafe.Pointer
	ToLength     uint32
	Interface    uint32
	Source       [16]byte
	SourceLength uint8
	ECN          uint8
	_            [14]byte
}

// DatagramCounters is quoit_datagram_counters.
type DatagramCounters struct {
	Size                uint32
	_                   uint32
	Received            uint64
	ReceivedBytes       uint64
	ReceivedBuffers     uint64
	ReceiveBatches      uint64
	LargestBatch        uint64
	KernelDrops         uint64
	Pauses              uint64
	Truncated           uint64
	ControlTruncated    uint64
	Arms                uint64
	ReceiveErrors       uint64
	Sent                uint64
	SentBytes           uint64
	Sends               uint64
	SendBatches         uint64
	SendsRefused        uint64
	SendErrors          uint64
	SegmentationRefused uint64
	Slots               uint64
	SlotsLeased         uint64
	SlotsLowWater       uint64
	QueuedBytes         uint64
	DirectSends         uint64
}

// What Command.Kind may be: QUOIT_COMMAND_*.
const (
	CommandConnect        = 1
	CommandSend           = 3
	CommandSendFile       = 5
	CommandShutdown       = 6
	CommandClose          = 7
	CommandAbort          = 8
	CommandPause          = 9
	CommandResume         = 10
	CommandSetDeadline    = 11
	CommandSetTimer       = 12
	CommandStopListening  = 14
	CommandReturnLease    = 16
	CommandSendDatagrams  = 18
	CommandJoinMulticast  = 21
	CommandLeaveMulticast = 22
	CommandCloseDatagram  = 23

	CommandPauseListening  = 25
	CommandResumeListening = 26
)

// What Event.Kind may be: QUOIT_EVENT_*.
const (
	EventAccepted       = 1
	EventConnecting     = 3
	EventOpened         = 4
	EventData           = 5
	EventEndOfStream    = 6
	EventSent           = 7
	EventWritable       = 8
	EventDeadline       = 10
	EventClosed         = 11
	EventListenerClosed = 12
	EventRefused        = 13
	EventTimer          = 14

	EventDatagrams       = 19
	EventDatagramSent    = 20
	EventDatagramError   = 21
	EventDatagramClosed  = 24
	EventDatagramRefused = 25

	EventFileShort    = 26
	EventAcceptFailed = 27
	EventSendFailed   = 28
)

// Flags: QUOIT_FLAG_ECN of DatagramSend.Flags, QUOIT_FLAG_TELL_SHORT of Command.Flags, QUOIT_DATAGRAMS_* of Datagrams.Flags, QUOIT_DATAGRAM_* and QUOIT_GRO_* of
// DatagramOptions.
const (
	FlagECN       = 4
	FlagTellShort = 16

	DatagramsTruncated = 1
	DatagramsECN       = 2

	DatagramReusePort       = 1
	DatagramReuseAddress    = 2
	DatagramBroadcast       = 4
	DatagramIPv6Only        = 8
	DatagramTellECN         = 16
	DatagramTellTime        = 32
	DatagramTellLocal       = 64
	DatagramTellUnreachable = 512

	GROTransparent = 1
)

// What Event.Reason may be: QUOIT_CLOSED_* of EventClosed, QUOIT_REFUSED_* of EventRefused, QUOIT_DATAGRAM_ERROR_* of
// EventDatagramError.
const (
	ClosedLocal   = 1
	ClosedPeer    = 2
	ClosedReset   = 3
	ClosedTimeout = 4
	ClosedLimit   = 5
	ClosedError   = 6

	RefusedStale   = 1
	RefusedFull    = 2
	RefusedClosing = 4
	RefusedError   = 6

	DatagramErrorUnreachable = 6
)

// Engines: QUOIT_ENGINE_*.
const (
	EngineAuto  = 0
	EngineURing = 1
	EngineEpoll = 2
)

// Of QUOIT_BIND_.
const (
	BindReusePort = 1
	BindIPv6Only  = 2
)

// CounterInfo says what one counter is.
type CounterInfo struct {
	Name  string
	About string
	Gauge bool // the present value; otherwise it only grows
	Index int  // into Counters
}

// Capability is one feature of io_uring.
type Capability struct {
	Name          string
	About         string
	MinimumKernel string
	Reason        string // why it is not usable
	Bit           uint64 // for Config.Without
	Usable        bool
}

// Counters holds the values of quoit_counters, in the order of CounterInfo.Index.
type Counters [countersInABI]uint64

// countersInABI is how many values quoit_counters has in this package's header.
const countersInABI = 69
