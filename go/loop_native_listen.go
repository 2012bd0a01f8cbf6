//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quoit-io/quoit/go/internal/native"
)

func (l *nativeLoop) streamOptions(config *config) native.StreamOptions {
	options := native.StreamOptions{}
	if config.noDelay {
		options.NoDelay = 1
	}
	if seconds := uint32((config.keepAlive + time.Second - 1) / time.Second); config.keepAlive > 0 {
		options.KeepaliveIdleS, options.KeepaliveIntervalS, options.KeepaliveProbes = seconds, seconds, 9
	}
	return options
}

// listen implements backend: the first loop accepts, and each connection goes to the loop with the fewest; or each
// loop accepts from a socket of its own.
func (l *nativeLoop) listen(to *listening) error {
	if strings.HasPrefix(to.address, unixPrefix) {
		shared := *to.config // one path has one socket
		shared.reusePort = false
		to.config = &shared
	}
	var flags uint32
	if to.config.reusePort {
		flags |= native.BindReusePort
	}
	if to.config.ipv6Only {
		flags |= native.BindIPv6Only
	}
	var socket *native.Socket
	var err error
	if to.config.file != nil {
		socket, err = adopt(to.config.file)
	} else {
		socket, err = native.Bind(libraryAddress(to.address), flags, to.config.backlog)
	}
	if err != nil {
		return err
	}
	bound := socket.Address()
	to.local = parseAddress(bound)
	acceptors := []*nativeLoop{l}
	sockets := []*native.Socket{socket}
	for _, other := range l.group.loops {
		if loop := other.(*nativeLoop); to.config.reusePort && loop != l {
			socket, err := native.Bind(bound, flags, to.config.backlog)
			if err != nil {
				for _, socket := range sockets {
					socket.Close()
				}
				return err
			}
			acceptors, sockets = append(acceptors, loop), append(sockets, socket)
		}
	}
	parts := &listeningParts{whole: to}
	to.hold, to.stop = parts.hold, parts.stop
	for index, loop := range acceptors {
		if err := parts.add(loop, sockets[index]); err != nil {
			for _, socket := range sockets[index+1:] {
				socket.Close()
			}
			parts.stop()
			return err
		}
	}
	return nil
}

// adopt makes a socket of the library's of a copy of one that listens.
func adopt(file *os.File) (*native.Socket, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var descriptor uintptr
	var errno syscall.Errno
	err = raw.Control(func(original uintptr) {
		descriptor, _, errno = syscall.Syscall(syscall.SYS_FCNTL, original, syscall.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("fcntl", errno)
	}
	if err != nil {
		return nil, err
	}
	return native.Adopt(int(descriptor))
}

// listenOn accepts from a socket: for all loops that run, or for itself where each has a socket of its own.
func (l *nativeLoop) listenOn(socket *native.Socket, config *config) (native.ID, error) {
	if config.reusePort {
		return l.library.Listen(socket, nil, l.streamOptions(config))
	}
	var remotes []*native.Remote
	for _, other := range l.group.loops {
		loop := other.(*nativeLoop)
		// Until the library has copied the remotes, none of them must be released.
		loop.mu.Lock()
		defer loop.mu.Unlock()
		if !loop.ended {
			remotes = append(remotes, loop.remote)
		}
	}
	if len(remotes) == 1 {
		remotes = nil
	}
	return l.library.Listen(socket, remotes, l.streamOptions(config))
}

// listeningParts are the listeners of an address: one, or one per loop.
type listeningParts struct {
	whole *listening
	mu    sync.Mutex
	open  int
	// those that loops may report connections of
	unsettled int
	parts     []*listening // that were not told to stop
}

func (p *listeningParts) add(loop *nativeLoop, socket *native.Socket) error {
	part := &listening{
		address: p.whole.address, accept: p.whole.accept, failed: p.whole.failed, loop: loop.index, stopped: make(chan struct{}),
		settled: make(chan struct{}),
	}
	err := error(ErrShutdown)
	var id native.ID
	started := loop.call(func() {
		id, err = loop.listenOn(socket, p.whole.config)
		if err != nil {
			return
		}
		command := func(kind uint16) {
			loop.post(func() { loop.push(native.Command{Kind: kind, Target: id, Token: tokenOther}) })
		}
		part.hold = func(on bool) {
			if on {
				command(native.CommandPauseListening)
			} else {
				command(native.CommandResumeListening)
			}
		}
		part.stop = func() { command(native.CommandStopListening) }
		// It accepts from the next turn on, so that no connection comes before this.
		loop.group.setAcceptor(id, part)
	})
	if err != nil {
		if !started {
			socket.Close()
		}
		return err
	}
	p.mu.Lock()
	p.open++
	p.unsettled++
	p.parts = append(p.parts, part)
	p.mu.Unlock()
	go func() {
		<-part.stopped
		p.mu.Lock()
		p.open--
		last := p.open == 0
		p.mu.Unlock()
		if last || part.failure != nil {
			p.whole.end(part.failure)
		}
		<-part.settled
		p.mu.Lock()
		p.unsettled--
		last = p.unsettled == 0
		p.mu.Unlock()
		if last {
			close(p.whole.settled)
		}
	}()
	return nil
}

// hold has all parts accept nothing more, or go on. Those who call it say in which order they do.
func (p *listeningParts) hold(on bool) {
	p.mu.Lock()
	parts := p.parts
	p.mu.Unlock()
	for _, part := range parts {
		part.hold(on)
	}
}

func (p *listeningParts) stop() {
	p.mu.Lock()
	parts := p.parts
	p.parts = nil
	p.mu.Unlock()
	for _, part := range parts {
		part.stop()
	}
}
