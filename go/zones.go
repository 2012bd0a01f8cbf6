package quoit

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The zone of an address that means something on one link only is the name of an interface in Go, and its number for the kernel.
// Asking for the interfaces costs several system calls, and a socket may have a peer on the link for each datagram: so they are kept
// for a while, as in package net.
type interfaceNames struct {
	mu      sync.Mutex
	asked   time.Time
	names   map[uint32]string
	numbers map[string]uint32
}

var interfaces interfaceNames

// interfacesLast is how long the names of interfaces are not asked for again, as with package net.
const interfacesLast = time.Minute

// refresh asks for the interfaces, unless that was done a short time ago; all says that something was not found. The lock is held.
func (i *interfaceNames) refresh(missing bool) {
	now := time.Now()
	// What is missing may have come meanwhile. Whoever sends to a zone that does not exist must not make each datagram ask.
	if age := now.Sub(i.asked); age < interfacesLast && !(missing && age > time.Second) {
		return
	}
	found, err := net.Interfaces()
	if err != nil {
		return
	}
	i.asked, i.names, i.numbers = now, make(map[uint32]string, len(found)), make(map[string]uint32, len(found))
	for _, one := range found {
		i.names[uint32(one.Index)], i.numbers[one.Name] = one.Name, uint32(one.Index)
	}
}

// zoneName is the zone that has this number: the interface's name, or the number if there is no such interface any more.
func zoneName(number uint32) string {
	interfaces.mu.Lock()
	defer interfaces.mu.Unlock()
	interfaces.refresh(false)
	name, known := interfaces.names[number]
	if !known {
		interfaces.refresh(true)
		name, known = interfaces.names[number]
	}
	if !known {
		return strconv.FormatUint(uint64(number), 10)
	}
	return name
}

// zoneNumber is the number of a zone, which may be one itself; 0 if there is no such interface.
func zoneNumber(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if number, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(number)
	}
	interfaces.mu.Lock()
	defer interfaces.mu.Unlock()
	interfaces.refresh(false)
	number, known := interfaces.numbers[zone]
	if !known {
		interfaces.refresh(true)
		number = interfaces.numbers[zone]
	}
	return number
}

// withNumber makes of an address with a zone one that the library takes. Others are left as they are.
func withNumber(address string) string {
	if !strings.Contains(address, "%") {
		return address
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || parsed.Addr().Zone() == "" {
		return address // a path
	}
	ip := parsed.Addr().WithZone("")
	if number := zoneNumber(parsed.Addr().Zone()); number != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(number), 10))
	}
	return netip.AddrPortFrom(ip, parsed.Port()).String()
}

// withName gives the zone of an address that the library has told its name.
func withName(address netip.AddrPort) netip.AddrPort {
	ip := address.Addr()
	if ip.Zone() == "" {
		return address
	}
	return netip.AddrPortFrom(ip.WithZone(zoneName(zoneNumber(ip.Zone()))), address.Port())
}
