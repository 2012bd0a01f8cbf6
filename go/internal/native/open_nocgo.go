//go:build linux && !cgo && !quoit_std && (amd64 || arm64)

package native

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/quoit-io/quoit/go/internal/nocgo"
)

// Static says whether libquoit.a was linked in, so that nothing is looked for at run time.
const Static = false

// What there is of the C headers' that calls need, beside types.go.
const (
	textSize     = 512 // room for the text of a failed call, with its NUL
	abiVersion   = 1<<16 | 15
	figureGauge  = 1
	acceptSpread = 3
	now          = 2 // RTLD_NOW of dlopen(3), which is RTLD_LOCAL by itself
)

type bindOptions struct {
	size, flags, backlog, receiveBuffer, sendBuffer, _ uint32
}

type listenOptions struct {
	size, accept   uint32
	remotes        unsafe.Pointer
	remoteCount, _ uint32
	stream         StreamOptions
	tellFailures   uint32
	reservedToo    uint32
}

type capability struct {
	size, usable                       uint32
	bit                                uint64
	name, about, minimumKernel, reason *byte
}

type counterInfo struct {
	size, kind, offset, _ uint32
	name, about           *byte
}

type counters struct {
	size, _ uint32
	turns   Counters
}

// symbols has the addresses of what is called.
var symbols struct {
	abiCheck, version, layout, errorText, counterDescribe, configDefault, bindOptionsDefault, listenOptionsDefault,
	capabilitiesProbe, capabilitiesUsable, capabilitiesReason, capabilitiesGet, capabilitiesFree, socketBind, socketAdopt,
	socketAddress, socketClose, loopCreate, loopDestroy, turn, fd, nextDeadline, engine, engineReason, listen, localAddress, peerAddress,
	connectionFD, loopRemote, remoteRelease, remoteWake, remoteCounters, datagramOptionsDefault, datagramSocketBind,
	datagramSocketAddress, datagramSocketClose, openDatagram, datagramCountersRead, takenByPeer, queued, datagramFD,
	loopDirectSender, directSenderTrySend, directSenderRelease, loopDirectDatagramSender, directDatagramSenderTrySend,
	directDatagramSenderRelease uintptr
}

var calls = []struct {
	name    string // without quoit_
	address *uintptr
}{
	{"abi_check", &symbols.abiCheck},
	{"version", &symbols.version},
	{"layout", &symbols.layout},
	{"error_text", &symbols.errorText},
	{"counter_describe", &symbols.counterDescribe},
	{"config_default", &symbols.configDefault},
	{"bind_options_default", &symbols.bindOptionsDefault},
	{"listen_options_default", &symbols.listenOptionsDefault},
	{"capabilities_probe", &symbols.capabilitiesProbe},
	{"capabilities_usable", &symbols.capabilitiesUsable},
	{"capabilities_reason", &symbols.capabilitiesReason},
	{"capabilities_get", &symbols.capabilitiesGet},
	{"capabilities_free", &symbols.capabilitiesFree},
	{"socket_bind", &symbols.socketBind},
	{"socket_adopt", &symbols.socketAdopt},
	{"socket_address", &symbols.socketAddress},
	{"socket_close", &symbols.socketClose},
	{"loop_create", &symbols.loopCreate},
	{"loop_destroy", &symbols.loopDestroy},
	{"turn", &symbols.turn},
	{"fd", &symbols.fd},
	{"next_deadline", &symbols.nextDeadline},
	{"engine", &symbols.engine},
	{"engine_reason", &symbols.engineReason},
	{"listen", &symbols.listen},
	{"local_address", &symbols.localAddress},
	{"peer_address", &symbols.peerAddress},
	{"connection_fd", &symbols.connectionFD},
	{"loop_remote", &symbols.loopRemote},
	{"remote_release", &symbols.remoteRelease},
	{"remote_wake", &symbols.remoteWake},
	{"remote_counters", &symbols.remoteCounters},
	{"datagram_options_default", &symbols.datagramOptionsDefault},
	{"datagram_socket_bind", &symbols.datagramSocketBind},
	{"datagram_socket_address", &symbols.datagramSocketAddress},
	{"datagram_socket_close", &symbols.datagramSocketClose},
	{"open_datagram", &symbols.openDatagram},
	{"datagram_counters_read", &symbols.datagramCountersRead},
	{"taken_by_peer", &symbols.takenByPeer},
	{"queued", &symbols.queued},
	{"datagram_fd", &symbols.datagramFD},
	{"loop_direct_sender", &symbols.loopDirectSender},
	{"direct_sender_try_send", &symbols.directSenderTrySend},
	{"direct_sender_release", &symbols.directSenderRelease},
	{"loop_direct_datagram_sender", &symbols.loopDirectDatagramSender},
	{"direct_datagram_sender_try_send", &symbols.directDatagramSenderTrySend},
	{"direct_datagram_sender_release", &symbols.directDatagramSenderRelease},
}

// callable says why nothing can be called.
func callable() error {
	if nocgo.Registered.Call == nil {
		return errors.New("this program was built without cgo: build it with CGO_ENABLED=1, or import github.com/quoit-io/quoit/go/nocgo")
	}
	return nil
}

// open opens a file, and looks up what is called; an empty path is that of the system.
func open(path string) error {
	if path == "" {
		path = "libquoit.so.0"
	}
	// What dlerror(3) tells of a failure is the thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Never closed: its threads and thread-locals may outlive any use.
	handle, err := nocgo.Registered.Open(path, now)
	if err != nil {
		return err
	}
	for _, call := range calls {
		found, err := nocgo.Registered.Symbol(handle, "quoit_"+call.name)
		if err != nil {
			return fmt.Errorf("it has no quoit_%s, so it is not libquoit, or one of another version", call.name)
		}
		*call.address = found
	}
	return nil
}

// onGlibc returns whether this program runs on glibc; otherwise it is musl.
func onGlibc() bool {
	// 0 is RTLD_DEFAULT.
	_, err := nocgo.Registered.Symbol(0, "gnu_get_libc_version")
	return err == nil
}

func abiCheck() error {
	var text text
	_, err := answered("quoit_abi_check", &text, symbols.abiCheck, abiVersion)
	return err
}

func layout() string { return textOf(symbols.layout) }

// Version is the library's own version.
func Version() string { return textOf(symbols.version) }

// textOf is what a call without arguments returns: a text that is the library's.
func textOf(function uintptr) string {
	result, _, _ := nocgo.Registered.Call(function)
	return goString(*(**byte)(unsafe.Pointer(&result)))
}

// goString copies a text that ends with a NUL.
func goString(text *byte) string {
	if text == nil {
		return ""
	}
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(text, length))
}
