package native

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestTheHeaderIsTheRepositorys(t *testing.T) {
	original := filepath.Join("..", "..", "..", "crates", "quoit-capi", "include")
	if _, err := os.Stat(original); err != nil {
		t.Skip("not in a clone of the repository")
	}
	for _, name := range []string{"quoit.h", "quoit-layout.txt"} {
		want, err := os.ReadFile(filepath.Join(original, name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, have) {
			t.Errorf("%s differs from the one in %s; copy it", name, original)
		}
	}
}

// snake makes of TimeNS time_ns, as the header writes it.
func snake(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for index, r := range runes {
		upper := r >= 'A' && r <= 'Z'
		startsWord := index > 0 && upper && (runes[index-1] < 'A' || runes[index-1] > 'Z')
		if startsWord {
			out.WriteByte('_')
		}
		out.WriteString(strings.ToLower(string(r)))
	}
	return out.String()
}

// withoutCgo are structures that only programs without cgo have in Go; the others take them from the header.
var withoutCgo = map[string]reflect.Type{}

func TestGoStructuresHaveTheLayout(t *testing.T) {
	structures := maps.Clone(withoutCgo)
	maps.Copy(structures, map[string]reflect.Type{
		"quoit_command":         reflect.TypeFor[Command](),
		"quoit_event":           reflect.TypeFor[Event](),
		"quoit_stream_options":  reflect.TypeFor[StreamOptions](),
		"quoit_config":          reflect.TypeFor[Config](),
		"quoit_connect_options": reflect.TypeFor[ConnectOptions](),

		"quoit_multicast_group":   reflect.TypeFor[MulticastGroup](),
		"quoit_datagram_options":  reflect.TypeFor[DatagramOptions](),
		"quoit_datagrams":         reflect.TypeFor[Datagrams](),
		"quoit_datagram_send":     reflect.TypeFor[DatagramSend](),
		"quoit_datagram_counters": reflect.TypeFor[DatagramCounters](),
	})
	checked := 0
	lines := bufio.NewScanner(strings.NewReader(layoutText))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		structure, known := structures[words[1]]
		switch {
		case !known:
		case words[0] == "struct":
			if size := strconv.Itoa(int(structure.Size())); size != words[2] {
				t.Errorf("%s: Go's is %s bytes", lines.Text(), size)
			}
			checked++
		case words[0] == "field" && words[2] != "reserved":
			found := false
			for index := range structure.NumField() {
				field := structure.Field(index)
				if snake(field.Name) != words[2] {
					continue
				}
				found = true
				if strconv.Itoa(int(field.Offset)) != words[3] || strconv.Itoa(int(field.Type.Size())) != words[4] {
					t.Errorf("%s: Go's is at %d, %d bytes", lines.Text(), field.Offset, field.Type.Size())
				}
			}
			if !found {
				t.Errorf("%s: Go's structure has no such field", lines.Text())
			}
			checked++
		}
	}
	if checked < 60 {
		t.Errorf("only %d lines were checked", checked)
	}
}

// constantsWithoutCgo likewise.
var constantsWithoutCgo = map[string]int{}

func TestTheCountersAreTheHeaders(t *testing.T) {
	fields := strings.Count(layoutText, "\nfield quoit_counters ")
	if counters := fields - len([]string{"size", "reserved"}); counters != countersInABI {
		t.Errorf("the header has %d counters, and Go %d", counters, countersInABI)
	}
}

func TestConstantsAreTheHeaders(t *testing.T) {
	constants := map[string]int{
		"COMMAND_CONNECT": CommandConnect, "COMMAND_SEND": CommandSend,
		"COMMAND_SHUTDOWN": CommandShutdown, "COMMAND_CLOSE": CommandClose, "COMMAND_ABORT": CommandAbort,
		"COMMAND_PAUSE": CommandPause, "COMMAND_RESUME": CommandResume, "COMMAND_SET_DEADLINE": CommandSetDeadline,
		"COMMAND_SET_TIMER": CommandSetTimer, "COMMAND_STOP_LISTENING": CommandStopListening,
		"COMMAND_PAUSE_LISTENING": CommandPauseListening, "COMMAND_RESUME_LISTENING": CommandResumeListening,
		"COMMAND_RETURN_LEASE": CommandReturnLease,
		"EVENT_ACCEPTED":       EventAccepted, "EVENT_CONNECTING": EventConnecting, "EVENT_OPENED": EventOpened,
		"EVENT_DATA": EventData, "EVENT_END_OF_STREAM": EventEndOfStream, "EVENT_WRITABLE": EventWritable,
		"EVENT_DEADLINE": EventDeadline, "EVENT_CLOSED": EventClosed, "EVENT_LISTENER_CLOSED": EventListenerClosed,
		"EVENT_REFUSED": EventRefused, "EVENT_TIMER": EventTimer,
		"CLOSED_LOCAL": ClosedLocal, "CLOSED_PEER": ClosedPeer, "CLOSED_RESET": ClosedReset,
		"CLOSED_TIMEOUT": ClosedTimeout, "CLOSED_LIMIT": ClosedLimit, "CLOSED_ERROR": ClosedError,
		"REFUSED_FULL": RefusedFull, "REFUSED_ERROR": RefusedError,
		"ENGINE_AUTO": EngineAuto, "ENGINE_URING": EngineURing, "ENGINE_EPOLL": EngineEpoll,
		"BIND_REUSE_PORT":        BindReusePort,
		"BIND_IPV6_ONLY":         BindIPv6Only,
		"COMMAND_SEND_DATAGRAMS": CommandSendDatagrams, "COMMAND_CLOSE_DATAGRAM": CommandCloseDatagram,
		"COMMAND_JOIN_MULTICAST": CommandJoinMulticast, "COMMAND_LEAVE_MULTICAST": CommandLeaveMulticast,
		"EVENT_DATAGRAMS": EventDatagrams, "EVENT_DATAGRAM_SENT": EventDatagramSent,
		"EVENT_DATAGRAM_ERROR": EventDatagramError, "EVENT_DATAGRAM_CLOSED": EventDatagramClosed,
		"EVENT_DATAGRAM_REFUSED": EventDatagramRefused, "FLAG_ECN": FlagECN,
		"DATAGRAMS_TRUNCATED": DatagramsTruncated, "DATAGRAMS_ECN": DatagramsECN,
		"DATAGRAM_REUSE_PORT": DatagramReusePort, "DATAGRAM_REUSE_ADDRESS": DatagramReuseAddress,
		"DATAGRAM_BROADCAST": DatagramBroadcast, "DATAGRAM_IPV6_ONLY": DatagramIPv6Only,
		"DATAGRAM_TELL_ECN": DatagramTellECN, "DATAGRAM_TELL_TIME": DatagramTellTime,
		"DATAGRAM_TELL_LOCAL": DatagramTellLocal, "GRO_TRANSPARENT": GROTransparent,
	}
	maps.Copy(constants, constantsWithoutCgo)
	for name, value := range constants {
		if !strings.Contains(layoutText, "constant QUOIT_"+name+" "+strconv.Itoa(value)+"\n") {
			t.Errorf("QUOIT_%s is not %d", name, value)
		}
	}
}

func TestALayoutOfAnotherVersionIsRefused(t *testing.T) {
	if err := checkLayout(layoutText); err != nil {
		t.Error(err)
	}
	grown := strings.Replace(layoutText, "struct quoit_config 144", "struct quoit_config 152", 1)
	if err := checkLayout(grown); err != nil {
		t.Errorf("a structure that begins with its size may grow: %v", err)
	}
	for _, change := range [][2]string{
		{"struct quoit_event 64", "struct quoit_event 72"},
		{"field quoit_config high_water 44", "field quoit_config high_water 48"},
		{"constant QUOIT_EVENT_DATA 5", "constant QUOIT_EVENT_DATA 6"},
	} {
		if checkLayout(strings.Replace(layoutText, change[0], change[1], 1)) == nil {
			t.Errorf("%q is not noticed", change[1])
		}
	}
}
