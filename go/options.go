package quoit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"time"
)

// Engine names what moves the bytes.
type Engine int

const (
	// EngineAuto is io_uring where it is usable, otherwise epoll; and package net where libquoit cannot be used. The
	// reason is logged, and Loops.EngineReason returns it.
	EngineAuto Engine = iota
	// EngineURing is io_uring, or an error with the reason.
	EngineURing
	// EngineEpoll is libquoit on epoll, or an error with the reason.
	EngineEpoll
	// EngineStd is package net, with a goroutine per connection. It is always there.
	EngineStd
)

// String is the engine's name as in logs: auto, uring, epoll or std.
func (e Engine) String() string {
	switch e {
	case EngineAuto:
		return "auto"
	case EngineURing:
		return "uring"
	case EngineEpoll:
		return "epoll"
	case EngineStd:
		return "std"
	}
	return fmt.Sprintf("Engine(%d)", int(e))
}

// ParseEngine is the inverse of Engine.String, for flags.
func ParseEngine(name string) (Engine, error) {
	for engine := EngineAuto; engine <= EngineStd; engine++ {
		if engine.String() == name {
			return engine, nil
		}
	}
	return 0, fmt.Errorf("quoit: %q is not an engine; use auto, uring, epoll or std", name)
}

// Option changes one default. Options that make no sense together are reported by the call that takes them.
type Option func(*config)

type config struct {
	shared      *Loops
	loops       int
	engine      Engine
	kernelPoll  time.Duration // negative: off
	without     []string
	connections int

	spareProcessor bool

	receiveSlots, receiveSlotSize int
	highWater, lowWater           int
	inbound                       int

	datagramConfig

	ipv6Only   bool     // for the network tcp6
	file       *os.File // listens already
	reusePort  bool
	backlog    int
	noDelay    bool
	keepAlive  time.Duration
	closeLimit time.Duration
	// headerWithin is the time for a header of the PROXY protocol; 0 if there are none
	headerWithin time.Duration
	crash        bool
	logger       *slog.Logger
}

func newConfig(options []Option) (*config, error) {
	c := &config{
		loops:           runtime.GOMAXPROCS(0),
		kernelPoll:      -1,
		connections:     16_384,
		receiveSlots:    1024,
		receiveSlotSize: 16 << 10,
		highWater:       256 << 10,
		lowWater:        64 << 10,
		inbound:         64 << 10,
		noDelay:         true,
		keepAlive:       15 * time.Second,
		closeLimit:      10 * time.Second,
		datagramConfig:  defaultDatagrams(),
	}
	for _, option := range options {
		option(c)
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	switch {
	case c.loops < 1 || c.loops > maxLoops:
		return nil, fmt.Errorf("quoit: WithLoops(%d): the number must be from 1 to %d", c.loops, maxLoops)
	case c.lowWater < 0 || c.highWater <= c.lowWater || c.highWater > 1<<30:
		return nil, fmt.Errorf("quoit: WithWaterMarks(%d, %d): the high mark must be above the low one, at most 1 GiB",
			c.highWater, c.lowWater)
	case c.inbound < 1:
		return nil, fmt.Errorf("quoit: WithInboundLimit(%d): the limit must be at least 1", c.inbound)
	case c.connections < 1 || c.connections > 1<<20:
		return nil, fmt.Errorf("quoit: WithConnections(%d): the number must be from 1 to 1,048,576", c.connections)
	case c.receiveSlots < 1 || c.receiveSlots > 1<<15 || c.receiveSlotSize < 64 || c.receiveSlotSize > 1<<24:
		return nil, fmt.Errorf("quoit: WithReceivePool(%d, %d): there may be 1 to 32,768 slots of 64 bytes to 16 MiB",
			c.receiveSlots, c.receiveSlotSize)
	case c.headerWithin < 0:
		return nil, fmt.Errorf("quoit: WithProxyProtocol(%v): the time must be positive, or 0 for 10 s", c.headerWithin)
	case c.closeLimit <= 0:
		return nil, fmt.Errorf("quoit: WithCloseLimit(%v): the time must be positive", c.closeLimit)
	}
	if err := c.datagramConfig.check(); err != nil {
		return nil, err
	}
	return c, nil
}

// keepAliveConfig is WithKeepAlive as package net takes it.
func (c *config) keepAliveConfig() net.KeepAliveConfig {
	if c.keepAlive <= 0 {
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{Enable: true, Idle: c.keepAlive, Interval: c.keepAlive, Count: 9}
}

// listenStd is net.Listen, with WithKeepAlive and WithReusePort.
func (c *config) listenStd(network, address string) (net.Listener, error) {
	with := net.ListenConfig{KeepAlive: -1, KeepAliveConfig: c.keepAliveConfig()}
	if c.reusePort && strings.HasPrefix(network, "tcp") {
		with.Control = setReusePort
	}
	return with.Listen(context.Background(), network, address)
}

// lowWaterBelow is the low mark of the library's own queue. It takes at once what is between the marks, which is half of that queue
// at least, whatever the handler's own marks are: marks next to each other would make it a byte at a time.
func (c *config) lowWaterBelow() int { return min(c.lowWater, c.highWater/2) }

// setNoDelay sets WithNoDelay on a connection of package net's, which has it from the start otherwise.
func (c *config) setNoDelay(connection net.Conn) {
	if tcp, is := connection.(*net.TCPConn); is && !c.noDelay {
		_ = tcp.SetNoDelay(false) // a connection that has gone already tells when it is read
	}
}

// newPlainConfig is newConfig for all but servers with a Handler.
func newPlainConfig(options []Option) (*config, error) {
	c, err := newConfig(options)
	if err == nil && c.headerWithin > 0 {
		return nil, errors.New("quoit: WithProxyProtocol is for Serve and Start; " +
			"wrap the Listener of Listen as one of package net, such as by github.com/pires/go-proxyproto")
	}
	return c, err
}

// maxLoops is the number of loops that the ids of one process can tell apart.
const maxLoops = 4096

// OnLoops runs on these loops instead of on new ones. Options that make loops have no effect beside it, nor have those for what
// their connections may take: WithConnections, WithReceivePool, WithWaterMarks and WithInboundLimit, and WithCloseLimit but for what
// Serve waits. The loops are not shut down with what runs on them.
func OnLoops(loops *Loops) Option { return func(c *config) { c.shared = loops } }

// WithLoops sets the number of loops, each a thread of its own. Default: runtime.GOMAXPROCS(0).
func WithLoops(number int) Option { return func(c *config) { c.loops = number } }

// WithSpareProcessor raises GOMAXPROCS, where it is lower, to one more than the process has loops on libquoit, and leaves
// it there. A loop that waits keeps one of Go's processors; with one to spare all loops can, nothing else waits for
// them, and they need no changes of thread, which costs least. It changes the whole program, which may then run Go on
// one thread more, and ends the runtime's own updates of GOMAXPROCS. Default: off, and the last loop shares.
func WithSpareProcessor() Option { return func(c *config) { c.spareProcessor = true } }

// WithEngine chooses the engine. Default: EngineAuto.
func WithEngine(engine Engine) Option { return func(c *config) { c.engine = engine } }

// WithKernelPoll lets a kernel thread per loop poll for submissions (IORING_SETUP_SQPOLL), which sleeps after this idle
// time. It saves system calls at the price of up to a whole processor a loop. Default: off.
func WithKernelPoll(idle time.Duration) Option { return func(c *config) { c.kernelPoll = idle } }

// Without switches off features of io_uring that the kernel has, by their names in Doctor: buffer-ring,
// multishot-receive and so on. Default: none.
func Without(features ...string) Option {
	return func(c *config) { c.without = append(c.without, features...) }
}

// WithoutBufferRing is Without("buffer-ring"): the kernel does not choose the receive buffers.
func WithoutBufferRing() Option { return Without("buffer-ring") }

// WithConnections limits the connections of each loop; at the limit accepting pauses. Default: 16,384.
func WithConnections(number int) Option { return func(c *config) { c.connections = number } }

// WithReceivePool sets the native receive memory of each loop: at most 32,768 slots, each of slotSize bytes. It is
// touched as it is used. Default: 1,024 slots of 16 KiB.
func WithReceivePool(slots, slotSize int) Option {
	return func(c *config) { c.receiveSlots, c.receiveSlotSize = slots, slotSize }
}

// WithWaterMarks bounds what is queued for sending on a connection, in bytes: past the high mark Write returns
// ErrFull, and at the low mark OnWritable follows. The library below queues as much again. Default: 256 KiB, 64 KiB.
func WithWaterMarks(high, low int) Option {
	return func(c *config) { c.highWater, c.lowWater = high, low }
}

// WithInboundLimit bounds what a connection keeps of bytes that its handler has not consumed, or its net.Conn has
// not read. At the limit receiving pauses, so that a turn's bytes may be above it, until half is consumed. Default:
// 64 KiB.
func WithInboundLimit(bytes int) Option { return func(c *config) { c.inbound = bytes } }

// WithReusePort gives each loop a listening socket of its own (SO_REUSEPORT): a second server on the port gets no
// error, and what is queued at a loop's end is reset. It is of TCP only, and for Unix sockets changes nothing; on EngineStd there
// is one socket with it, on Linux. Default: one socket, whose connections go to the loop with the fewest.
func WithReusePort() Option { return func(c *config) { c.reusePort = true } }

// WithBacklog sets how many connections may wait to be accepted; on EngineStd it is the kernel's limit that says so. Default:
// 4,096, and the kernel's limit.
func WithBacklog(number int) Option { return func(c *config) { c.backlog = number } }

// WithNoDelay sets TCP_NODELAY on connections. Default: true.
func WithNoDelay(on bool) Option { return func(c *config) { c.noDelay = on } }

// WithKeepAlive sets the idle time and interval of TCP's keepalive, which is ended by 9 unanswered probes; 0 or less
// turns it off. Default: 15 s, as in package net.
func WithKeepAlive(period time.Duration) Option { return func(c *config) { c.keepAlive = period } }

// WithCloseLimit sets how long a graceful close goes on with a peer that takes nothing. After that, a connection of which
// the kernel has all that was written is left to the kernel, which goes on sending, and one of which something is still
// queued in the process is reset. Default: 10 s.
func WithCloseLimit(limit time.Duration) Option { return func(c *config) { c.closeLimit = limit } }

// WithCrashOnPanic lets a handler's panic end the program. Default: the panic is logged, its connection is aborted,
// and the loop goes on.
func WithCrashOnPanic() Option { return func(c *config) { c.crash = true } }

// WithLogger sets where the module reports: which engine runs and why, and handlers' panics. Default: slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }
